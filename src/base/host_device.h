// Functions that CUDA kernels and the CPU both run: kernels call them, CPU tests hold them.
#pragma once

#ifdef __CUDACC__
#define ROPEWALK_HD __host__ __device__
#else
#define ROPEWALK_HD
#endif
