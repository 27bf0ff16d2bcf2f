# ropewalk::cudart: the CUDA runtime, linked statically, so that a machine that runs a program needs NVIDIA's driver
# and nothing else. A build uses this file, and so does what links an installed library: it needs libcudart_static.a of
# the same major version (a CUDA toolkit, or its package cuda-cudart-dev alone), and no nvcc.
find_library(ROPEWALK_CUDART cudart_static
             HINTS ${ROPEWALK_CUDART_DIR}
             PATHS ${CUDAToolkit_ROOT} $ENV{CUDA_PATH} /usr/local/cuda
             PATH_SUFFIXES lib64 lib targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib)
find_package(Threads)
if(ROPEWALK_CUDART AND Threads_FOUND AND NOT TARGET ropewalk::cudart)
  add_library(ropewalk::cudart INTERFACE IMPORTED)
  set_target_properties(ropewalk::cudart PROPERTIES INTERFACE_LINK_LIBRARIES
                                         "${ROPEWALK_CUDART};Threads::Threads;${CMAKE_DL_LIBS};rt")
endif()
