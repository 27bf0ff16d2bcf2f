# make install, and find_package(ropewalk) for those who link it (tests/docs proves both).
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY ROPEWALK_LIBRARIES)
install(TARGETS ${libraries} EXPORT ropewalkTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/ropewalk DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET ropewalk)
  install(TARGETS ropewalk RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ropewalk)
install(EXPORT ropewalkTargets NAMESPACE ropewalk:: DESTINATION ${config_dir})
configure_package_config_file(cmake/ropewalkConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/ropewalkConfig.cmake
                              INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ropewalkConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ropewalkConfig.cmake
              ${PROJECT_BINARY_DIR}/ropewalkConfigVersion.cmake cmake/ropewalkCudart.cmake DESTINATION ${config_dir})
