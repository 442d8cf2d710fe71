# SPDX-License-Identifier: MIT
# Builds for Windows on Linux, with Debian's g++ of MinGW-w64 or with clang and that g++'s headers and libraries, and runs the
# programs by wine, which finds the libraries of g++ and oneTBB in WINEPATH. scripts/matrix makes the folder of packages that
# CMAKE_PREFIX_PATH names.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_CROSSCOMPILING_EMULATOR wine)

# Packages are those of the folder, and headers of Linux are never found.
set(CMAKE_FIND_ROOT_PATH ${CMAKE_PREFIX_PATH} /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CMAKE_PREFIX_PATH)

# For large objects GNU's linker takes minutes, and LLVM's a second.
execute_process(COMMAND x86_64-w64-mingw32-g++-posix -print-file-name=. OUTPUT_VARIABLE gnu OUTPUT_STRIP_TRAILING_WHITESPACE)
set(link_flags "-pthread -fuse-ld=lld -L${gnu}")

if(CMAKE_CXX_COMPILER MATCHES "clang")
  set(CMAKE_CXX_COMPILER_TARGET x86_64-w64-mingw32)
  # g++'s library keeps what belongs to a thread as -femulated-tls does. Of an inline constructor that only other files call clang
  # leaves one of two symbols out, unless -mno-constructor-aliases asks for both.
  set(CMAKE_CXX_FLAGS_INIT "-femulated-tls -Xclang -mno-constructor-aliases")
  string(APPEND CMAKE_CXX_FLAGS_INIT " -cxx-isystem ${gnu}/include/c++ -cxx-isystem ${gnu}/include/c++/x86_64-w64-mingw32")
  set(CMAKE_EXE_LINKER_FLAGS_INIT "${link_flags}")
else()
  set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
  # g++ aligns its stack to 16 bytes on Windows (its bug 54412) and yet moves vectors of 32 bytes as
  # if they were aligned; the assembler makes moves of them that need no alignment. Without optimisation a file has too many
  # functions for the usual form of an object.
  set(CMAKE_CXX_FLAGS_INIT "-Wa,-muse-unaligned-vector-move -Wa,-mbig-obj")
  # g++ starts GNU's linker alone, so clang links. CMake has a rule of its own, and reads this file once more behind it.
  set(CMAKE_CXX_LINK_EXECUTABLE
    "clang++ --target=x86_64-w64-mingw32 ${link_flags} <LINK_FLAGS> <OBJECTS> -o <TARGET> <LINK_LIBRARIES>")
  set(CMAKE_USER_MAKE_RULES_OVERRIDE_CXX ${CMAKE_CURRENT_LIST_FILE})
endif()
