# Installation: headers, libraries, a CMake package and a pkg-config file.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

function(sluice_install)
  set(include_dir "${CMAKE_INSTALL_INCLUDEDIR}/sluice")
  set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/sluice")
  set(pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

  set(targets ${SLUICE_COMPONENTS})
  list(TRANSFORM targets PREPEND sluice_)
  set_target_properties(sluice_sluice PROPERTIES EXPORT_NAME sluice)
  install(TARGETS ${targets} sluice_sluice EXPORT sluice
    FILE_SET HEADERS DESTINATION "${include_dir}"
    INCLUDES DESTINATION "${include_dir}")

  # CMake: find_package(sluice CONFIG).
  install(EXPORT sluice NAMESPACE sluice:: FILE sluice-targets.cmake
          DESTINATION "${package_dir}")
  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/sluice-config.cmake.in"
    "${PROJECT_BINARY_DIR}/sluice-config.cmake"
    INSTALL_DESTINATION "${package_dir}")
  write_basic_package_version_file(
    "${PROJECT_BINARY_DIR}/sluice-config-version.cmake"
    COMPATIBILITY SameMinorVersion)  # before 1.0 every minor may break
  install(FILES "${PROJECT_BINARY_DIR}/sluice-config.cmake"
                "${PROJECT_BINARY_DIR}/sluice-config-version.cmake"
          DESTINATION "${package_dir}")

  # pkg-config: the prefix is where the file is found, so that the tree may be
  # moved, or installed elsewhere than it was configured for.
  if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    set(SLUICE_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
  else()
    file(RELATIVE_PATH up "/${pc_dir}" "/")
    string(REGEX REPLACE "/$" "" up "${up}")
    set(SLUICE_PC_PREFIX "\${pcfiledir}/${up}")
  endif()
  cmake_path(APPEND pc_include "\${prefix}" "${include_dir}")
  cmake_path(APPEND pc_lib "\${prefix}" "${CMAKE_INSTALL_LIBDIR}")
  set(libraries ${targets})
  list(REVERSE libraries)  # the linker wants users before what they use
  list(TRANSFORM libraries PREPEND -l)
  list(JOIN libraries " " pc_libraries)
  get_property(modules GLOBAL PROPERTY SLUICE_PC_REQUIRES)
  list(REMOVE_DUPLICATES modules)
  list(JOIN modules " " pc_requires)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/sluice.pc.in"
                 "${PROJECT_BINARY_DIR}/sluice.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/sluice.pc" DESTINATION "${pc_dir}")
endfunction()
