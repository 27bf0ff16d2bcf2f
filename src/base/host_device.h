// For functions that run in CUDA kernels and on the CPU, where tests check them.
#pragma once

#ifdef __CUDACC__
#define ROPEWALK_HD __host__ __device__
#else
#define ROPEWALK_HD
#endif

// Before a loop that kernels unroll, so that what it indexes stays in registers.
#ifdef __CUDA_ARCH__
#define ROPEWALK_UNROLL _Pragma("unroll")
#else
#define ROPEWALK_UNROLL
#endif
