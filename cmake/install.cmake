# SPDX-License-Identifier: MIT
# All files are the same on every machine, so they are installed under share, and none contains a
# path of this machine.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/fmoe)

# Each component has its own file, so that one can be loaded without the packages of the others.
install(TARGETS fmoe fmoe_separate EXPORT fmoe-fmoe-targets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS fmoe_eigen EXPORT fmoe-eigen-targets)
install(TARGETS fmoe_xtensor EXPORT fmoe-xtensor-targets)
install(TARGETS fmoe_mpi EXPORT fmoe-mpi-targets)
foreach(component IN ITEMS fmoe eigen mpi xtensor)
  install(EXPORT fmoe-${component}-targets NAMESPACE fmoe:: DESTINATION ${package_dir})
endforeach()

# fmoe::cuda depends on the languages of the project that links it, and fmoe::dispatch is compiled by it, so they are made there.
foreach(component IN ITEMS cuda dispatch)
  install(FILES cmake/${component}.cmake DESTINATION ${package_dir} RENAME fmoe-${component}-targets.cmake)
endforeach()
install(FILES cmake/cuda.cu cmake/cuda.cpp cmake/dispatch.cpp cmake/dispatch_level.cpp DESTINATION ${package_dir})

# It is not below package_dir, because vcpkg moves that folder.
target_sources(fmoe_separate INTERFACE $<INSTALL_INTERFACE:$<INSTALL_PREFIX>/${CMAKE_INSTALL_DATADIR}/fmoe/separate.cpp>)
install(FILES cmake/separate.cpp DESTINATION ${CMAKE_INSTALL_DATADIR}/fmoe)

set(compatible SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatible SameMinorVersion)
endif()
write_basic_package_version_file(fmoe-config-version.cmake COMPATIBILITY ${compatible} ARCH_INDEPENDENT)
install(FILES cmake/fmoe-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/fmoe-config-version.cmake DESTINATION ${package_dir})
install(FILES cmake/dependencies.cmake DESTINATION ${package_dir} RENAME fmoe-dependencies.cmake)

set(pc_to_prefix ${CMAKE_INSTALL_PREFIX})
cmake_path(RELATIVE_PATH pc_to_prefix BASE_DIRECTORY ${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig)
configure_file(cmake/fmoe.pc.in fmoe.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/fmoe.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/fmoe)
