# Every dependency is a Debian package; README.md and scripts/deps.sh name them.
include(ropewalkExternal)
set(externals OpenMP::OpenMP_CXX fmt::fmt DNNL::dnnl PkgConfig::hwy PkgConfig::xxhash PkgConfig::pcre2 PkgConfig::utf8proc
              PkgConfig::sentencepiece)
if(ROPEWALK_BUILD_CLI)
  list(APPEND externals PkgConfig::cpp-httplib)
endif()
if(ROPEWALK_MPI)
  list(APPEND externals MPI::MPI_CXX)
endif()
foreach(target IN LISTS externals)
  ropewalk_find_external(${target} packages)
  if(packages)
    message(FATAL_ERROR "There is no ${target}: install ${packages} (scripts/deps.sh build does)")
  endif()
endforeach()
# SIMD targets that earn the time that they take to compile: the baseline, AVX2, and AVX-512 with and without bf16.
# What lies between differs in instructions that no kernel here needs.
target_compile_definitions(PkgConfig::hwy INTERFACE
                           "$<$<COMPILE_LANGUAGE:CXX>:HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL)>")
find_package(nlohmann_json 3.9 REQUIRED)
if(ROPEWALK_BUILD_CLI OR ROPEWALK_BUILD_PYTHON)
  find_package(CLI11 REQUIRED)
endif()
if(ROPEWALK_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(mpfr REQUIRED IMPORTED_TARGET mpfr)
endif()
