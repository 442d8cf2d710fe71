# SPDX-License-Identifier: MIT
# Installs the checkout that contains this folder; scripts/packages submission writes a port that downloads an archive instead.
file(REAL_PATH "${CURRENT_PORT_DIR}" port)  # which may be a link
cmake_path(SET SOURCE_PATH NORMALIZE "${port}/../../../..")
set(VCPKG_BUILD_TYPE release)  # nothing is compiled

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS -Dfmoe_FIND_DEPENDENCIES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/fmoe)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/licenses")
file(INSTALL "${CURRENT_PORT_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
