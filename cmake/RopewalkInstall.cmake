# make install, and find_package(ropewalk) and pkg-config for those who link it (tests/docs proves all three). Each
# library is a component: its own export set and its own .pc file, so that a program needs the libraries of others that
# its components are linked with, and no more.
include(CMakePackageConfigHelpers)

get_property(components GLOBAL PROPERTY ROPEWALK_COMPONENTS)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ropewalk)
set(private_dir ${CMAKE_INSTALL_LIBDIR}/ropewalk)
install(DIRECTORY include/ropewalk DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET ropewalk)
  install(TARGETS ropewalk RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES models/README.md models/config.json models/model.safetensors models/tokenizer.json models/tokenizer_config.json
          DESTINATION ${CMAKE_INSTALL_DATADIR}/ropewalk/models)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/share/bash-completion ${PROJECT_BINARY_DIR}/share/zsh
                    ${PROJECT_BINARY_DIR}/share/fish DESTINATION ${CMAKE_INSTALL_DATADIR} OPTIONAL)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/share/man/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)
endif()
if(ROPEWALK_HAVE_CUDA)
  # NVIDIA lets programs and libraries bring it along: who links an installed library needs no toolkit.
  install(FILES ${ROPEWALK_CUDART} DESTINATION ${private_dir} RENAME libcudart_static.a)
endif()

# For cc $(pkg-config --cflags --libs ropewalk-capi). Of static libraries Libs and Requires name all that a
# linker needs. From where the file lies to the prefix, wherever that is when it is installed:
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" to_prefix ${to_prefix})
function(ropewalk_write_pc name description requires libs)
  list(JOIN requires " " requires)
  list(JOIN libs " " libs)
  string(CONFIGURE [[
prefix=${pcfiledir}/@to_prefix@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: @name@
Description: @description@
Version: @PROJECT_VERSION@
Requires: @requires@
Libs: @libs@
Cflags: -I${includedir}
]] text @ONLY)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc CONTENT "${text}")
  install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

# Adds to `modules` and `libs` what one of ropewalkExternal.cmake is for pkg-config: a module of its own, or what a
# linker takes.
macro(ropewalk_pc_add target)
  if("${target}" MATCHES "^PkgConfig::(.+)$")
    list(APPEND modules ${_ropewalk_module_${CMAKE_MATCH_1}})
  elseif("${target}" STREQUAL fmt::fmt)
    list(APPEND modules fmt)
  elseif("${target}" STREQUAL OpenMP::OpenMP_CXX)
    foreach(name IN LISTS OpenMP_CXX_LIB_NAMES)
      list(APPEND libs -Wl,--push-state,--as-needed,-l${name},--pop-state)
    endforeach()
  elseif("${target}" STREQUAL MPI::MPI_CXX)
    list(APPEND libs ${MPI_CXX_LIBRARIES})
  elseif("${target}" STREQUAL DNNL::dnnl)
    list(APPEND libs -L$<TARGET_FILE_DIR:DNNL::dnnl> -ldnnl)
  elseif("${target}" STREQUAL ropewalk::cudart)
    list(APPEND libs -L\${libdir}/ropewalk -lcudart_static -lpthread -ldl -lrt)
  else()
    message(FATAL_ERROR "${target} needs its line in ropewalk_pc_add")
  endif()
endmacro()

set(facts "")
set(ends ${components})
foreach(component IN LISTS components)
  get_target_property(deps ropewalk_${component} ROPEWALK_DEPS)
  get_target_property(externals ropewalk_${component} ROPEWALK_EXTERNALS)
  string(APPEND facts "set(_ropewalk_${component}_deps ${deps})\n"
                      "set(_ropewalk_${component}_externals ${externals})\n")
  install(TARGETS ropewalk_${component} EXPORT ropewalk-${component} DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT ropewalk-${component} NAMESPACE ropewalk:: DESTINATION ${config_dir})

  get_target_property(type ropewalk_${component} TYPE)
  if(type STREQUAL SHARED_LIBRARY) # of what it is made it says itself
    ropewalk_write_pc(ropewalk-${component} "${PROJECT_DESCRIPTION}: the C interface, shared" "" "-L\${libdir} -lropewalk")
    list(REMOVE_ITEM ends ${component})
    continue()
  endif()
  list(TRANSFORM deps PREPEND ropewalk- OUTPUT_VARIABLE modules)
  set(libs -L\${libdir} -lropewalk_${component})
  foreach(external IN LISTS externals)
    ropewalk_pc_add(${external})
  endforeach()
  if(NOT deps) # it stands last on every command line
    list(TRANSFORM ROPEWALK_STANDARD_LIBS PREPEND -l OUTPUT_VARIABLE standard)
    list(APPEND libs ${standard})
  endif()
  ropewalk_write_pc(ropewalk-${component} "${PROJECT_DESCRIPTION}: ${component}" "${modules}" "${libs}")
  list(REMOVE_ITEM ends ${deps})
endforeach()
list(TRANSFORM ends PREPEND ropewalk-)
ropewalk_write_pc(ropewalk "${PROJECT_DESCRIPTION}: all of it" "${ends}" "")

configure_package_config_file(cmake/ropewalkConfig.cmake.in ${PROJECT_BINARY_DIR}/ropewalkConfig.cmake
                              INSTALL_DESTINATION ${config_dir} PATH_VARS private_dir)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ropewalkConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ropewalkConfig.cmake ${PROJECT_BINARY_DIR}/ropewalkConfigVersion.cmake
              cmake/ropewalkExternal.cmake
        DESTINATION ${config_dir})
