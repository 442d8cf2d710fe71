# SPDX-License-Identifier: MIT
# The settings with which tests, benchmarks and examples are built. Users of fmoe::fmoe get none of
# them.

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_COMPILE_WARNING_AS_ERROR ${fmoe_WARNINGS_AS_ERRORS})
if(NOT CMAKE_CXX_STANDARD)
  set(CMAKE_CXX_STANDARD 20)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

if(NOT DEFINED fmoe_ARCH)
  set(fmoe_ARCH "")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT CMAKE_CROSSCOMPILING)
    try_run(ran compiled ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/cmake/at_level.cpp RUN_OUTPUT_VARIABLE level)
    string(STRIP "${level}" level)
    if(level MATCHES "^v[234]$")
      set(fmoe_ARCH "x86-64-${level}")
    endif()
  endif()
  message(STATUS "fmoe_ARCH: ${fmoe_ARCH}")
endif()
set(fmoe_ARCH "${fmoe_ARCH}" CACHE STRING "-march of tests, benchmarks and examples; the best level this machine runs unless set")

# Tests of kernels are compiled for each of these levels. Where the list is not empty, all programs share planner and kernels by
# fmoe::fmoe, which has the kernels of fmoe_LEVELS; where it is empty, by a library for fmoe_ARCH alone.
set(levels "")
if(fmoe_ARCH MATCHES "^x86-64-(v[234])$")
  set(levels ${CMAKE_MATCH_1})
endif()
set(fmoe_TEST_LEVELS "${levels}" CACHE STRING "x86-64 levels that tests of kernels are compiled for: v2, v3, v4; unless set, the best that this machine runs")

# A program of a user's with these gets nothing from our headers, as docs/install.md says.
set(warnings -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wold-style-cast)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND warnings -Wcomma)  # no comma joins two statements
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND warnings -Wshadow)  # clang's speaks of names that our programs find by `using namespace fmoe`, too
  # False alarms inside g++'s own headers: AVX-512 intrinsics and std::string (12; PR 105593,
  # 105651), std::variant (14).
  list(APPEND warnings -Wno-uninitialized -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow)
  list(APPEND warnings -Wno-psabi)  # on ARM64 a note on what g++ 9 did
endif()

# clang's own copy of the sanitizers' functions defines operator new a second time for tests that count allocations; its shared
# library does not, but programs must be told where it is.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_FLAGS_DEBUG MATCHES "-shared-libasan")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so
    OUTPUT_VARIABLE library OUTPUT_STRIP_TRAILING_WHITESPACE)
  cmake_path(GET library PARENT_PATH folder)
  add_link_options(-Wl,-rpath,${folder})
endif()

# A faster linker, where there is one, for more than a hundred programs.
find_program(fmoe_LLD ld.lld)
mark_as_advanced(fmoe_LLD)
if(fmoe_LLD AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=lld)
endif()

# Finds a package that only our own programs need.
macro(fmoe_find)
  fmoe_look_for(${ARGV})
  if(fmoe_problems)
    message(FATAL_ERROR "${fmoe_problems}")
  endif()
endmacro()

# Sets up one of our own targets: with the headers and our warnings, for the architecture `arch`.
function(fmoe_configure target arch)
  target_link_libraries(${target} PRIVATE fmoe::header_only)
  target_compile_options(${target} PRIVATE ${warnings} $<$<BOOL:${arch}>:-march=${arch}>)
endfunction()

# Makes fmoe_runtime: planner and kernels for fmoe_ARCH alone, compiled once. With BUILD_SHARED_LIBS it is a
# shared library, and so are the kernels of GPUs: scripts/gpu carries one of each.
function(fmoe_make_runtime)
  if(NOT TARGET fmoe_runtime)
    list(TRANSFORM fmoe_engine_parts PREPEND ${PROJECT_SOURCE_DIR}/cmake/engine/ OUTPUT_VARIABLE parts)
    add_library(fmoe_runtime ${parts} ${PROJECT_SOURCE_DIR}/cmake/engine/kernels.cpp ${PROJECT_SOURCE_DIR}/cmake/engine/narrow_kernels.cpp)
    fmoe_configure(fmoe_runtime "${fmoe_ARCH}")
    target_compile_definitions(fmoe_runtime PUBLIC FMOE_SEPARATE_COMPILATION)
    # A preset whose tests are slow optimises this part of them alone.
    target_compile_options(fmoe_runtime PRIVATE ${fmoe_RUNTIME_OPTIONS})
  endif()
endfunction()

# Links planner and kernels, which all programs share.
function(fmoe_use_runtime target)
  if(fmoe_TEST_LEVELS)
    target_link_libraries(${target} PRIVATE fmoe::fmoe)
  else()
    fmoe_make_runtime()
    target_link_libraries(${target} PRIVATE fmoe_runtime)
  endif()
endfunction()

# Links the kernels of GPUs: on emulated blocks, which take minutes with -O0, or with the component cuda for GPUs, which run them
# where there are any.
function(fmoe_use_gpu_kernels target)
  if(NOT TARGET fmoe_gpu_kernels)
    add_library(fmoe_gpu_kernels)
    if(TARGET fmoe::cuda)
      target_link_libraries(fmoe_gpu_kernels PRIVATE fmoe::cuda)
    else()
      target_sources(fmoe_gpu_kernels PRIVATE ${PROJECT_SOURCE_DIR}/cmake/cuda.cpp)
      fmoe_configure(fmoe_gpu_kernels "${fmoe_ARCH}")
      target_compile_options(fmoe_gpu_kernels PRIVATE -O1)
    endif()
  endif()
  target_link_libraries(${target} PRIVATE fmoe_gpu_kernels)
endfunction()

function(fmoe_add_program target arch)
  add_executable(${target} ${ARGN})
  fmoe_configure(${target} "${arch}")
endfunction()
