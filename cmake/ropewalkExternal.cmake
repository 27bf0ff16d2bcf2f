# Libraries of others that ropewalk's are linked with: how each is found, and the Debian package that has it. A build
# uses this one list, and so does find_package(ropewalk), for what is asked of it.

# PkgConfig::<name> of which module.
set(_ropewalk_module_hwy libhwy)
set(_ropewalk_module_xxhash libxxhash)
set(_ropewalk_module_pcre2 libpcre2-8)
set(_ropewalk_module_utf8proc libutf8proc)
set(_ropewalk_module_sentencepiece sentencepiece)
set(_ropewalk_module_cpp-httplib cpp-httplib)

# Sets `out` to nothing once `target` exists, else to the Debian packages that bring it.
function(ropewalk_find_external target out)
  if(target STREQUAL OpenMP::OpenMP_CXX)
    set(packages g++ or libomp-dev)
    find_package(OpenMP QUIET COMPONENTS CXX)
    if(TARGET ${target} AND NOT TARGET ropewalk::openmp)
      # Linked only where something of it is called: reading configurations, say, needs no thread.
      add_library(ropewalk::openmp INTERFACE IMPORTED)
      foreach(library IN LISTS OpenMP_CXX_LIB_NAMES)
        target_link_libraries(ropewalk::openmp INTERFACE
                              "-Wl,--push-state,--as-needed,${OpenMP_${library}_LIBRARY},--pop-state")
      endforeach()
    endif()
  elseif(target STREQUAL MPI::MPI_CXX)
    set(packages libopenmpi-dev or libmpich-dev)
    set(MPI_CXX_SKIP_MPICXX TRUE) # the C interface alone is used
    find_package(MPI QUIET COMPONENTS CXX)
  elseif(target STREQUAL fmt::fmt)
    set(packages libfmt-dev)
    find_package(fmt QUIET)
  elseif(target STREQUAL DNNL::dnnl)
    set(packages libdnnl-dev ocl-icd-opencl-dev) # its CMake file asks for OpenCL
    find_package(dnnl CONFIG QUIET)
  elseif(target MATCHES "^PkgConfig::([a-z0-9-]+)$")
    set(name ${CMAKE_MATCH_1})
    set(packages pkg-config lib${name}-dev)
    if(name STREQUAL sentencepiece)
      list(APPEND packages libprotobuf-dev) # newer sentencepiece.pc ask for its .pc file
    endif()
    find_package(PkgConfig QUIET)
    if(PkgConfig_FOUND AND NOT TARGET ${target})
      pkg_check_modules(${name} QUIET IMPORTED_TARGET ${_ropewalk_module_${name}})
    endif()
  endif()
  list(JOIN packages " " packages)
  if(TARGET ${target})
    set(packages "")
  endif()
  set(${out} "${packages}" PARENT_SCOPE)
endfunction()
