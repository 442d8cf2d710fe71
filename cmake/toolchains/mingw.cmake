# SPDX-License-Identifier: MIT
# Builds for Windows on Linux, with Debian's g++ of MinGW-w64, and runs the programs by wine, which finds the libraries of g++
# and oneTBB in WINEPATH. scripts/matrix makes the folder of packages that CMAKE_PREFIX_PATH names.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_CROSSCOMPILING_EMULATOR wine)

# Packages are those of the folder, and headers of Linux are never found.
set(CMAKE_FIND_ROOT_PATH ${CMAKE_PREFIX_PATH} /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CMAKE_PREFIX_PATH)

# g++ aligns its stack to 16 bytes on Windows (its bug 54412) and yet moves vectors of 32 bytes as
# if they were aligned; the assembler makes moves of them that need no alignment.
set(CMAKE_CXX_FLAGS_INIT -Wa,-muse-unaligned-vector-move)
