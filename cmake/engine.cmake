# SPDX-License-Identifier: MIT
# Makes fmoe::fmoe: the headers, and a static library with planner and kernels that the project of the user compiles once.
#
# The library has the kernels of several instruction sets, of which a program runs the best that its CPU has. What is compiled for one
# of them holds inline functions, also of the standard library, that any other translation unit may hold, too: the linker would keep
# one of them, perhaps the one whose instructions the CPU lacks. So each level becomes one object whose symbols are its own, but for the
# functions that the planner calls and the names of types, by which exceptions are caught. On Windows g++ compares names of
# types by their letters, and a section of an inline function is merged with others unless it has the flags of any other.
set(fmoe_LEVELS "" CACHE STRING "Instruction sets that fmoe::fmoe has kernels of: x86-64-v2, x86-64-v3, x86-64-v4; or native, the best of this machine. Unless set, all of them")

# Sets fmoe_levels to those of fmoe_LEVELS, or to nothing where the linker cannot keep levels apart.
macro(fmoe_find_levels)
  set(fmoe_levels "")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    set(fmoe_levels x86-64-v2 x86-64-v3 x86-64-v4)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(fmoe_levels arm64)
  endif()
  if(NOT (CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF" OR (MINGW AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")) OR NOT CMAKE_OBJCOPY)
    set(fmoe_levels "")
  endif()
  if(fmoe_LEVELS AND NOT fmoe_LEVELS STREQUAL "native" AND NOT fmoe_levels)
    message(FATAL_ERROR "fmoe_LEVELS needs x86-64 or ARM64, objects of the format ELF or of MinGW's g++, and objcopy. Elsewhere fmoe::fmoe has the kernels that the flags of the project ask for: set -march there.")
  elseif(fmoe_LEVELS STREQUAL "native" AND "x86-64-v2" IN_LIST fmoe_levels)
    if(CMAKE_CROSSCOMPILING)
      message(FATAL_ERROR "fmoe_LEVELS is native, and a cross compiler's programs run elsewhere: name levels, as x86-64-v3.")
    endif()
    try_run(fmoe_ran fmoe_compiled ${CMAKE_CURRENT_BINARY_DIR} ${CMAKE_CURRENT_LIST_DIR}/at_level.cpp RUN_OUTPUT_VARIABLE fmoe_level)
    string(STRIP "${fmoe_level}" fmoe_level)
    if(NOT fmoe_level MATCHES "^v[234]$")
      message(FATAL_ERROR "fmoe_LEVELS is native, and this machine lacks instructions of x86-64-v2, the lowest level.")
    endif()
    set(fmoe_levels x86-64-${fmoe_level})
  elseif(fmoe_LEVELS AND NOT fmoe_LEVELS STREQUAL "native")
    set(fmoe_asked "")
    foreach(fmoe_level IN LISTS fmoe_levels)  # in their order, which the choice at run time needs
      if(fmoe_level IN_LIST fmoe_LEVELS)
        list(APPEND fmoe_asked ${fmoe_level})
      endif()
    endforeach()
    foreach(fmoe_level IN LISTS fmoe_LEVELS)
      if(NOT fmoe_level IN_LIST fmoe_levels)
        list(JOIN fmoe_levels ", " fmoe_levels)
        message(FATAL_ERROR "fmoe_LEVELS has ${fmoe_level}: there are ${fmoe_levels} and native.")
      endif()
    endforeach()
    set(fmoe_levels ${fmoe_asked})
  endif()
endmacro()

# Flags of what is compiled for the engine alone. It is optimised in a project without CMAKE_BUILD_TYPE and in one that debugs its own
# code, and its warnings are not the user's.
function(fmoe_configure_engine target)
  target_link_libraries(${target} PUBLIC fmoe::header_only)
  target_compile_options(${target} PRIVATE -w)
  if(NOT CMAKE_CXX_FLAGS MATCHES "-O")
    target_compile_options(${target} PRIVATE $<$<OR:$<CONFIG:Debug>,$<STREQUAL:$<CONFIG>,>>:-O2>)
  endif()
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# What is compiled once, whatever the levels; kernels.cpp and narrow_kernels.cpp are compiled for each.
set(fmoe_engine_parts host.cpp io.cpp planner.cpp run.cpp)

if(NOT TARGET fmoe::fmoe)
  fmoe_find_levels()
  set(fmoe_seam --keep-global-symbol=_ZN4fmoe3cpu16level_kernels_ofI* --keep-global-symbol=_ZN4fmoe6detail14update_weightsI*
    --keep-global-symbol=_ZN4fmoe6detail10squares_ofI* --keep-global-symbol=_ZN4fmoe6detail11scale_arrayI*)
  list(TRANSFORM fmoe_engine_parts PREPEND ${CMAKE_CURRENT_LIST_DIR}/engine/ OUTPUT_VARIABLE fmoe_engine_files)
  set(fmoe_level_objects "")
  foreach(fmoe_level IN LISTS fmoe_levels)
    set(fmoe_target fmoe_engine_${fmoe_level})
    add_library(${fmoe_target} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/engine/kernels.cpp)
    if(MINGW)
      target_compile_definitions(${fmoe_target} PRIVATE FMOE_ONE_OBJECT)
    else()
      target_sources(${fmoe_target} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/engine/narrow_kernels.cpp)
    endif()
    fmoe_configure_engine(${fmoe_target})
    target_compile_definitions(${fmoe_target} PRIVATE FMOE_SEPARATE_COMPILATION)
    # Objects for the link time are no ELF, and unique symbols are one for a process.
    target_compile_options(${fmoe_target} PRIVATE -fno-lto $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
    if(fmoe_level MATCHES "^x86")
      target_compile_options(${fmoe_target} PRIVATE -march=${fmoe_level})
    endif()
    set_target_properties(${fmoe_target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
    set(fmoe_level_object ${CMAKE_CURRENT_BINARY_DIR}/${fmoe_target}.o)
    set(fmoe_hide COMMAND ${CMAKE_CXX_COMPILER} -fuse-ld=bfd -r -nostdlib -Wl,--force-group-allocation
      $<TARGET_OBJECTS:${fmoe_target}> -o ${fmoe_level_object}
      COMMAND ${CMAKE_OBJCOPY} --wildcard ${fmoe_seam} --keep-global-symbol=_ZTI* --keep-global-symbol=_ZTS* ${fmoe_level_object})
    if(MINGW)
      set(fmoe_hide COMMAND ${CMAKE_OBJCOPY} --wildcard ${fmoe_seam} --set-section-flags .text$*=alloc,load,readonly,code)
      foreach(fmoe_section IN ITEMS rdata xdata pdata)
        list(APPEND fmoe_hide --set-section-flags .${fmoe_section}$*=alloc,load,readonly,data)
      endforeach()
      list(APPEND fmoe_hide --set-section-flags .data$*=alloc,load,data --set-section-flags .bss$*=alloc
        $<TARGET_OBJECTS:${fmoe_target}> ${fmoe_level_object})
    endif()
    add_custom_command(OUTPUT ${fmoe_level_object} ${fmoe_hide}
      DEPENDS $<TARGET_OBJECTS:${fmoe_target}>
      COMMENT "Hiding the inline functions of ${fmoe_level}" VERBATIM COMMAND_EXPAND_LISTS)
    list(APPEND fmoe_level_objects ${fmoe_level_object})
  endforeach()

  if(NOT fmoe_levels)
    list(APPEND fmoe_engine_files ${CMAKE_CURRENT_LIST_DIR}/engine/kernels.cpp ${CMAKE_CURRENT_LIST_DIR}/engine/narrow_kernels.cpp)
  endif()
  # In one target with the levels' objects, these would wait for them.
  add_library(fmoe_engine_once OBJECT EXCLUDE_FROM_ALL ${fmoe_engine_files})
  fmoe_configure_engine(fmoe_engine_once)
  target_compile_definitions(fmoe_engine_once PRIVATE FMOE_SEPARATE_COMPILATION)
  add_library(fmoe_engine STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:fmoe_engine_once> ${fmoe_level_objects})
  add_library(fmoe::fmoe ALIAS fmoe_engine)
  set_target_properties(fmoe_engine PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(fmoe_engine PUBLIC fmoe::header_only)
  target_compile_definitions(fmoe_engine PUBLIC FMOE_SEPARATE_COMPILATION)
  if(fmoe_levels)
    list(TRANSFORM fmoe_levels PREPEND fmoe_engine_ OUTPUT_VARIABLE fmoe_level_targets)
    add_dependencies(fmoe_engine ${fmoe_level_targets})
    string(REPLACE "-" "_" fmoe_level_names "${fmoe_levels}")
    string(REPLACE ";" "," fmoe_level_names "${fmoe_level_names}")
    target_compile_definitions(fmoe_engine_once PRIVATE FMOE_DISPATCH "FMOE_LEVELS=${fmoe_level_names}")
    target_compile_definitions(fmoe_engine PUBLIC FMOE_DISPATCH)
  endif()
endif()
