# SPDX-License-Identifier: MIT
# cmake -DCURRENT_PORT_DIR=... -DCURRENT_PACKAGES_DIR=... -DCURRENT_BUILDTREES_DIR=... -P: runs a portfile without vcpkg. Its
# commands stand here in short: what they do to a header-only package, in the places where vcpkg does it. GITHUB is the URL that
# stands for https://github.com.
cmake_path(GET CURRENT_PORT_DIR FILENAME PORT)
file(READ ${CURRENT_PORT_DIR}/vcpkg.json manifest)
string(JSON VERSION GET "${manifest}" version-semver)

function(vcpkg_download_distfile out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "URLS;FILENAME;SHA512" "")
  file(DOWNLOAD ${arg_URLS} ${CURRENT_BUILDTREES_DIR}/${arg_FILENAME} EXPECTED_HASH SHA512=${arg_SHA512})
  set(${out} ${CURRENT_BUILDTREES_DIR}/${arg_FILENAME} PARENT_SCOPE)
endfunction()

# Gives the folder in the archive, of which there is one.
function(vcpkg_extract_source_archive out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "ARCHIVE" "")
  file(ARCHIVE_EXTRACT INPUT ${arg_ARCHIVE} DESTINATION ${CURRENT_BUILDTREES_DIR}/src)
  file(GLOB folder ${CURRENT_BUILDTREES_DIR}/src/*)
  set(${out} ${folder} PARENT_SCOPE)
endfunction()

function(vcpkg_from_github)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT_SOURCE_PATH;REPO;REF;SHA512;HEAD_REF" "")
  vcpkg_download_distfile(archive URLS ${GITHUB}/${arg_REPO}/archive/refs/tags/${arg_REF}.tar.gz FILENAME ${PORT}.tar.gz SHA512 ${arg_SHA512})
  vcpkg_extract_source_archive(source ARCHIVE ${archive})
  set(${arg_OUT_SOURCE_PATH} ${source} PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B ${CURRENT_BUILDTREES_DIR} -G Ninja
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR} -DCMAKE_INSTALL_LIBDIR=lib
    -DCMAKE_ERROR_ON_ABSOLUTE_INSTALL_DESTINATION=ON -DFETCHCONTENT_FULLY_DISCONNECTED=ON ${arg_OPTIONS}
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(vcpkg_cmake_install)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${CURRENT_BUILDTREES_DIR} --target install COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Moves the package's files to share/<port>, and with them the way to the prefix that CMake wrote into them.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
  file(GLOB files ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/*)  # beside what the folder holds already
  file(COPY ${files} DESTINATION ${CURRENT_PACKAGES_DIR}/share/${PORT})
  file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/share/cmake)
  file(GLOB files ${CURRENT_PACKAGES_DIR}/share/${PORT}/*.cmake)
  set(up "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n")
  foreach(file IN LISTS files)
    file(READ ${file} text)
    string(REPLACE "${up}${up}${up}" "${up}${up}" text "${text}")
    file(WRITE ${file} "${text}")
  endforeach()
endfunction()

function(vcpkg_fixup_pkgconfig)  # changes nothing where no path of the package is written out
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  configure_file(${arg_FILE_LIST} ${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright COPYONLY)
endfunction()

include(${CURRENT_PORT_DIR}/portfile.cmake)
if(NOT VCPKG_BUILD_TYPE STREQUAL "release")
  message(FATAL_ERROR "the port builds for debugging, too, which leaves an empty folder")
endif()
