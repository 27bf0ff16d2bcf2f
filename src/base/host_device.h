// For functions that run in CUDA kernels and on the CPU, where tests check them.
#pragma once

#ifdef __CUDACC__
#define ROPEWALK_HD __host__ __device__
#else
#define ROPEWALK_HD
#endif
