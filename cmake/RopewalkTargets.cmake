# Helpers that keep every folder's CMakeLists.txt a list of facts.
include(GNUInstallDirs)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# Flags shared by all targets. Contraction is off everywhere: tables must have the same bits on every
# SIMD target, with or without FMA; kernels that want FMA ask for it (Highway's MulAdd).
function(ropewalk_flags target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE -Wall -Wextra -ffp-contract=off
                                           $<$<BOOL:${ROPEWALK_WERROR}>:-Werror>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 warns falsely of overlapping copies inside std::string (GCC bug 105329).
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(ROPEWALK_SANITIZE)
    # -O1 and no null or vptr checks halve the time that the instrumented code takes to build; the
    # address sanitizer stops at a null pointer as well.
    target_compile_options(${target} PRIVATE -O1 -fsanitize=${ROPEWALK_SANITIZE}
                                             -fno-sanitize=null,vptr -fno-sanitize-recover=all
                                             -fno-omit-frame-pointer)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      # What the sanitizers put between the lines makes GCC warn falsely of std::variant.
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${ROPEWALK_SANITIZE})
  endif()
endfunction()

# ropewalk_library(<folder> SOURCES ... DEPS <folders to its left> LIBS <private libraries>)
function(ropewalk_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(ropewalk_${name} STATIC ${ARG_SOURCES})
  add_library(ropewalk::${name} ALIAS ropewalk_${name})
  set_target_properties(ropewalk_${name} PROPERTIES EXPORT_NAME ${name})
  ropewalk_flags(ropewalk_${name})
  target_include_directories(
    ropewalk_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(ropewalk_${name} PUBLIC ropewalk::${dep})
  endforeach()
  target_link_libraries(ropewalk_${name} PRIVATE ${ARG_LIBS})
  set_property(GLOBAL APPEND PROPERTY ROPEWALK_LIBRARIES ropewalk_${name})
endfunction()

# ropewalk_test(<name> SOURCES ... LIBS ...): one GoogleTest program; every test in it is a ctest.
function(ropewalk_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name}_test ${ARG_SOURCES})
  ropewalk_flags(${name}_test)
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name}_test
                             PRIVATE ROPEWALK_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name}_test PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name}_test)
  # One thread unless a test asks for more: ctest runs two programs at a time, and threads that spin for
  # a busy core cost more than they give.
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 ENVIRONMENT
                                          "OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive")
endfunction()
