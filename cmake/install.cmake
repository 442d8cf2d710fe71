# SPDX-License-Identifier: MIT
# All files are the same on every machine, so they are installed under share, and none contains a
# path of this machine.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/fmoe)

install(TARGETS fmoe_header_only EXPORT fmoe-header_only-targets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT fmoe-header_only-targets NAMESPACE fmoe:: DESTINATION ${package_dir})

# Each project makes the other targets, since it compiles fmoe::fmoe, and fmoe::cuda depends on its languages.
install(FILES cmake/at_level.cpp cmake/cuda.cmake cmake/cuda.cu cmake/cuda.cpp cmake/engine.cmake
  DESTINATION ${package_dir})
install(DIRECTORY cmake/engine DESTINATION ${package_dir})

set(compatible SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatible SameMinorVersion)
endif()
write_basic_package_version_file(fmoe-config-version.cmake COMPATIBILITY ${compatible} ARCH_INDEPENDENT)
install(FILES cmake/fmoe-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/fmoe-config-version.cmake DESTINATION ${package_dir})
install(FILES cmake/dependencies.cmake DESTINATION ${package_dir} RENAME fmoe-dependencies.cmake)

# With the engine, fmoe.pc is a file of this architecture.
set(pc_folder ${CMAKE_INSTALL_DATADIR})
set(pc_definitions "")
set(pc_libs "")
if(fmoe_ENGINE)
  set(pc_folder ${CMAKE_INSTALL_LIBDIR})
  set(pc_libs "Libs: -L\${prefix}/${CMAKE_INSTALL_LIBDIR} -lfmoe_engine")
  get_target_property(definitions fmoe_engine INTERFACE_COMPILE_DEFINITIONS)
  list(JOIN definitions " -D" definitions)
  set(pc_definitions " -D${definitions}")
  set_target_properties(fmoe_engine PROPERTIES EXCLUDE_FROM_ALL OFF)
  install(TARGETS fmoe_engine ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
set(pc_to_prefix ${CMAKE_INSTALL_PREFIX})
cmake_path(RELATIVE_PATH pc_to_prefix BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pc_folder}/pkgconfig)
configure_file(cmake/fmoe.pc.in fmoe.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/fmoe.pc DESTINATION ${pc_folder}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/fmoe)
