# SPDX-License-Identifier: MIT
# Builds for ARM64 Linux on another machine, with Debian's cross compiler, and runs what is built under qemu. The packages are in
# a root of ARM64, which scripts/arm64 makes; the environment may name another one by FMOE_ARM64_ROOT.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
if(DEFINED ENV{FMOE_ARM64_ROOT})
  set(CMAKE_SYSROOT $ENV{FMOE_ARM64_ROOT})
else()
  cmake_path(SET CMAKE_SYSROOT NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../../build/arm64/root)
endif()
set(CMAKE_FIND_ROOT_PATH ${CMAKE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
# No option of qemu stands here: examples are run by `cmake -P`, which would take it for its own.
set(CMAKE_CROSSCOMPILING_EMULATOR env QEMU_LD_PREFIX=${CMAKE_SYSROOT} qemu-aarch64)
