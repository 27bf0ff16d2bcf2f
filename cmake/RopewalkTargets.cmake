# Helpers that keep every folder's CMakeLists.txt a list of facts.
include(GNUInstallDirs)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# The standard library of C++, for programs that another language's linker makes.
set(ROPEWALK_STANDARD_LIBS ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER ROPEWALK_STANDARD_LIBS INCLUDE REGEX "^(stdc\\+\\+|c\\+\\+|c\\+\\+abi|m)$")
list(REMOVE_DUPLICATES ROPEWALK_STANDARD_LIBS)

# Flags of what nvcc compiles, with those of the host compiler. The standard stands here because CMake knows C++20
# for CUDA from 3.26 on.
function(ropewalk_cuda_flags target host_flags)
  if(NOT ROPEWALK_HAVE_CUDA)
    return()
  endif()
  # What nvcc hands on has lost the defaults of fields that designated initialisers leave out, and has parentheses
  # round pointers to members.
  list(APPEND host_flags -Wno-missing-field-initializers -Wno-parentheses)
  list(JOIN host_flags "," host_flags)
  set(flags -std=c++20 --fmad=false --expt-relaxed-constexpr -Xcompiler=${host_flags}
            $<$<BOOL:${ROPEWALK_WERROR}>:-Werror=all-warnings>)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${flags}>")
endfunction()

# Flags shared by all targets. Contraction is off everywhere: tables must have the same bits on every
# SIMD target, with or without FMA; kernels that want FMA ask for it (Highway's MulAdd).
function(ropewalk_flags target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  set(flags -Wall -Wextra -ffp-contract=off)
  if(ROPEWALK_WERROR)
    list(APPEND flags -Werror)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 warns falsely of overlapping copies inside std::string (GCC bug 105329).
    list(APPEND flags -Wno-restrict)
  endif()
  ropewalk_cuda_flags(${target} "${flags}")
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
  if(ROPEWALK_SANITIZE)
    # -O1 and without these checks the instrumented code builds in a third of the time; the address
    # sanitizer stops at such pointers as well, when something is read or written through them.
    set(flags -O1 -fsanitize=${ROPEWALK_SANITIZE} -fno-sanitize=null,vptr,object-size,pointer-overflow
              -fno-sanitize-recover=all -fno-omit-frame-pointer)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      # What the sanitizers put between the lines makes GCC warn falsely of std::variant.
      list(APPEND flags -Wno-maybe-uninitialized)
    endif()
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
    target_link_options(${target} PUBLIC -fsanitize=${ROPEWALK_SANITIZE})
  endif()
endfunction()

# For programs that spend their time in the libraries: -O1 builds in two thirds of the time of -O3.
function(ropewalk_program_flags target)
  ropewalk_flags(${target})
  if(ROPEWALK_SANITIZE)
    # Alignment is checked in the libraries: programs take a quarter less time to build without.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=alignment>)
  else()
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  endif()
endfunction()

# Compiles eight sources of a target at a time, which share the time that headers and their templates take: a clean
# build takes half as long. Names of one folder's sources differ for it, those in anonymous namespaces too. Not for
# libraries of which programs link a part (plan and io, without OpenMP or CUDA), nor for sources compiled once per SIMD
# target. Builds for the linter, fuzzing and sanitizers, which link nothing or everything, group all folders, and more.
option(ROPEWALK_GROUPED "Compile the sources of a folder in groups" ON)
option(ROPEWALK_LARGE_GROUPS "Compile the sources of every folder in groups of 24" OFF)
function(ropewalk_group target)
  if(ROPEWALK_GROUPED)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    get_target_property(sources ${target} SOURCES)
    foreach(source IN LISTS sources)
      get_filename_component(path ${source} ABSOLUTE)
      if(EXISTS ${path})
        file(STRINGS ${path} apart REGEX "foreach_target" LIMIT_COUNT 1)
        if(apart)
          set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
        endif()
      endif()
    endforeach()
  endif()
endfunction()

# ropewalk_library(<folder> [GROUPED] SOURCES ... DEPS <folders to its left>
#                  LIBS <private libraries, of ropewalkExternal.cmake> HEADERS <those that are headers alone>
#                  CUDA_SOURCES ... NO_CUDA_SOURCES <what stands for them in a build without CUDA>)
function(ropewalk_library name)
  cmake_parse_arguments(ARG "GROUPED" "" "SOURCES;CUDA_SOURCES;NO_CUDA_SOURCES;DEPS;LIBS;HEADERS" ${ARGN})
  if(ROPEWALK_HAVE_CUDA)
    list(APPEND ARG_SOURCES ${ARG_CUDA_SOURCES})
  else()
    list(APPEND ARG_SOURCES ${ARG_NO_CUDA_SOURCES})
  endif()
  add_library(ropewalk_${name} STATIC ${ARG_SOURCES})
  add_library(ropewalk::${name} ALIAS ropewalk_${name})
  set_target_properties(ropewalk_${name} PROPERTIES EXPORT_NAME ${name})
  ropewalk_flags(ropewalk_${name})
  if(ARG_GROUPED OR ROPEWALK_LARGE_GROUPS)
    ropewalk_group(ropewalk_${name})
  endif()
  if(ROPEWALK_LARGE_GROUPS)
    set_target_properties(ropewalk_${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 24)
  endif()
  target_include_directories(
    ropewalk_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(ropewalk_${name} PUBLIC ropewalk::${dep})
  endforeach()
  set(libs ${ARG_LIBS})
  if(OpenMP::OpenMP_CXX IN_LIST libs)
    list(TRANSFORM libs REPLACE "^OpenMP::OpenMP_CXX$" ropewalk::openmp)
    target_compile_options(ropewalk_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${OpenMP_CXX_FLAGS}>)
  endif()
  target_link_libraries(ropewalk_${name} PRIVATE ${libs})
  foreach(headers IN LISTS ARG_HEADERS) # which who links an installed library does not need
    target_link_libraries(ropewalk_${name} PRIVATE $<BUILD_INTERFACE:${headers}>)
  endforeach()
  # For RopewalkInstall.cmake.
  set_target_properties(ropewalk_${name} PROPERTIES ROPEWALK_DEPS "${ARG_DEPS}" ROPEWALK_EXTERNALS "${ARG_LIBS}")
  set_property(GLOBAL APPEND PROPERTY ROPEWALK_COMPONENTS ${name})
endfunction()

# ropewalk_test(<name> [LONG] SOURCES ... LIBS ...): one GoogleTest program, which is one ctest; LONG ones start first.
function(ropewalk_test name)
  cmake_parse_arguments(ARG "LONG" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name}_test ${ARG_SOURCES})
  if(ROPEWALK_SANITIZE MATCHES address)
    # These sanitizers look at the library, which brings them to the link. Programs of tests build in half the time
    # without, and what they compare with runs at its speed.
    set(ROPEWALK_SANITIZE "")
  endif()
  ropewalk_program_flags(${name}_test)
  ropewalk_group(${name}_test)
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name}_test
                             PRIVATE ROPEWALK_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name}_test PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name}_test)
  # One thread unless a test asks for more: ctest runs two programs at a time, and threads that spin for
  # a busy core cost more than they give.
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 ENVIRONMENT
                                          "OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive")
  if(ARG_LONG)
    set_tests_properties(${name} PROPERTIES COST 1000)
  endif()
endfunction()
