# Whether kernels for GPUs are built: ROPEWALK_HAVE_CUDA, and with what. Without them the NO_CUDA_SOURCES of a folder
# stand for its CUDA_SOURCES: they say so to whoever calls one.
set(ROPEWALK_CUDA AUTO CACHE STRING "Kernels for NVIDIA GPUs: ON, OFF, or AUTO: if nvcc is there")
set_property(CACHE ROPEWALK_CUDA PROPERTY STRINGS AUTO ON OFF)
set(ROPEWALK_HAVE_CUDA OFF)

# The host compiler of nvcc: that of the C++ sources, unless it is none that every nvcc knows.
if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "Host compiler of nvcc")
endif()

# Sets `out` to the reason why there is no usable nvcc, to nothing if ROPEWALK_NVCC is one.
function(ropewalk_find_nvcc out)
  set(oldest 12.8) # the first that knows sm_100
  set(${out} "" PARENT_SCOPE)
  find_program(ROPEWALK_NVCC NAMES ${CMAKE_CUDA_COMPILER} $ENV{CUDACXX} nvcc
               PATHS $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
  if(NOT ROPEWALK_NVCC)
    set(${out} "there is no nvcc in PATH or /usr/local/cuda/bin" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${ROPEWALK_NVCC} --version OUTPUT_VARIABLE says ERROR_QUIET)
  if(NOT says MATCHES "release ([0-9]+\\.[0-9]+)")
    set(${out} "${ROPEWALK_NVCC} --version names no release" PARENT_SCOPE)
    return()
  elseif(CMAKE_MATCH_1 VERSION_LESS oldest)
    set(${out} "${ROPEWALK_NVCC} is ${CMAKE_MATCH_1}, older than ${oldest}" PARENT_SCOPE)
    return()
  endif()
  # An nvcc refuses host compilers that are newer than itself.
  set(source ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/ropewalk_nvcc.cu)
  file(WRITE ${source} "#include <vector>\n__global__ void Kernel(int*) {}\n")
  set(host ${CMAKE_CUDA_HOST_COMPILER} $ENV{CUDAHOSTCXX})
  list(TRANSFORM host PREPEND -ccbin=)
  list(SUBLIST host 0 1 host)
  execute_process(COMMAND ${ROPEWALK_NVCC} ${host} -std=c++20 -c ${source} -o ${source}.o
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE says)
  if(failed)
    string(REGEX MATCH "[^\n]*error[^\n]*" says "${says}")
    set(${out} "${ROPEWALK_NVCC} compiles nothing here (exit code ${failed}) ${says}; see CMAKE_CUDA_HOST_COMPILER"
        PARENT_SCOPE)
  endif()
endfunction()

if(NOT ROPEWALK_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ROPEWALK_CUDA: expected AUTO, ON or OFF, got '${ROPEWALK_CUDA}'")
elseif(ROPEWALK_CUDA STREQUAL OFF)
  set(why_no_cuda "ROPEWALK_CUDA is OFF")
elseif(ROPEWALK_CUDA STREQUAL AUTO AND (ROPEWALK_SANITIZE OR ROPEWALK_BUILD_FUZZ))
  # Instruments look at what runs on the CPU; what a thread of a kernel does is tested there too.
  set(why_no_cuda "sanitizers and fuzzing do without, unless ROPEWALK_CUDA is ON")
elseif(NOT ROPEWALK_NVCC OR NOT CMAKE_CUDA_COMPILER)
  ropewalk_find_nvcc(why_no_cuda)
endif()

if(NOT why_no_cuda)
  if(NOT DEFINED CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${ROPEWALK_NVCC} CACHE FILEPATH "CUDA compiler")
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Machine code for A100, H100 and H200, B200; PTX, which a driver compiles, for the rest from sm_80 on.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 80-virtual CACHE STRING "CUDA targets")
  endif()
  enable_language(CUDA)
  # The runtime is linked statically, so that a machine that runs a program needs NVIDIA's driver and nothing else, and
  # by name: then programs that link an installed library, in projects that know nothing of CUDA, get it as well.
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)
  find_library(ROPEWALK_CUDART cudart_static
               HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES}
               PATHS ${CUDAToolkit_ROOT} $ENV{CUDA_PATH} /usr/local/cuda
               PATH_SUFFIXES lib64 lib targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib REQUIRED)
  find_package(Threads REQUIRED)
  add_library(ropewalk::cudart INTERFACE IMPORTED)
  set_target_properties(ropewalk::cudart PROPERTIES INTERFACE_LINK_LIBRARIES
                                         "${ROPEWALK_CUDART};Threads::Threads;${CMAKE_DL_LIBS};rt")
  set(ROPEWALK_HAVE_CUDA ON)
  set(targets ${CMAKE_CUDA_ARCHITECTURES})
  list(TRANSFORM targets REPLACE "^([0-9]+[a-z]?)-virtual$" "ptx_\\1")
  list(TRANSFORM targets REPLACE "^([0-9]+[a-z]?)-real$" "sm_\\1")
  list(TRANSFORM targets REPLACE "^([0-9]+[a-z]?)$" "sm_\\1;ptx_\\1")
  list(JOIN targets " " ROPEWALK_CUDA_TARGETS)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" ROPEWALK_CUDA_TOOLKIT ${CMAKE_CUDA_COMPILER_VERSION})
  message(STATUS "CUDA: ${ROPEWALK_CUDA_TOOLKIT} for ${ROPEWALK_CUDA_TARGETS}")
elseif(ROPEWALK_CUDA STREQUAL ON)
  message(FATAL_ERROR "ROPEWALK_CUDA is ON, but ${why_no_cuda}")
else()
  message(STATUS "CUDA: none, ${why_no_cuda}")
endif()
