// The module of test_cuda.py: what Python hands to the kernels for GPUs, with the host in the place
// of the GPU (tests/cuda/host_gpu.cc). Errors are those of the package, which is imported before.
#include "python/src/register.h"

NB_MODULE(cuda_on_host, m) {
  nanobind::set_leak_warnings(false);
  ropewalk::python::RegisterCuda(m);
}
