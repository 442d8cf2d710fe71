# SPDX-License-Identifier: MIT
# Makes fmoe::dispatch: a static library with the planner, and with the kernels of each level, of
# which a program runs those of its CPU. It is installed as fmoe-dispatch-targets.cmake.
#
# What is compiled for a level holds inline functions, also of the standard library, that any other
# translation unit may hold, too: the linker would keep one of them, perhaps the one whose
# instructions the CPU lacks. So each level becomes one object whose symbols are its own, but for the
# functions that the planner calls and the names of types, by which exceptions are caught. On Windows g++ compares names of
# types by their letters, and a section of an inline function is merged with others unless it has the flags of any other.
if(NOT TARGET fmoe::dispatch)
  set(fmoe_levels "")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    set(fmoe_levels x86-64-v2 x86-64-v3 x86-64-v4)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(fmoe_levels arm64)
  endif()
  if(NOT fmoe_levels OR NOT (CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF" OR (MINGW AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")) OR NOT CMAKE_OBJCOPY)
    message(FATAL_ERROR "fmoe::dispatch needs x86-64 or ARM64, objects of the format ELF or of MinGW's g++, and objcopy: link fmoe::separate.")
  endif()
  set(fmoe_seam --keep-global-symbol=_ZN4fmoe3cpu4hostI* --keep-global-symbol=_ZN4fmoe6detail14update_weightsI*
    --keep-global-symbol=_ZN4fmoe6detail10squares_ofI* --keep-global-symbol=_ZN4fmoe6detail11scale_arrayI*)

  set(fmoe_level_objects "")
  foreach(level IN LISTS fmoe_levels)
    add_library(fmoe_dispatch_${level} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/dispatch_level.cpp)
    target_link_libraries(fmoe_dispatch_${level} PRIVATE fmoe::fmoe)
    # Objects for the link time are no ELF, and unique symbols are one for a process.
    target_compile_options(fmoe_dispatch_${level} PRIVATE -fno-lto $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
    if(level MATCHES "^x86")
      target_compile_options(fmoe_dispatch_${level} PRIVATE -march=${level})
    endif()
    set_target_properties(fmoe_dispatch_${level} PROPERTIES POSITION_INDEPENDENT_CODE ON INTERPROCEDURAL_OPTIMIZATION OFF)
    set(fmoe_level_object ${CMAKE_CURRENT_BINARY_DIR}/fmoe_dispatch_${level}.o)
    set(fmoe_hide COMMAND ${CMAKE_CXX_COMPILER} -fuse-ld=bfd -r -nostdlib -Wl,--force-group-allocation
      $<TARGET_OBJECTS:fmoe_dispatch_${level}> -o ${fmoe_level_object}
      COMMAND ${CMAKE_OBJCOPY} --wildcard ${fmoe_seam} --keep-global-symbol=_ZTI* --keep-global-symbol=_ZTS* ${fmoe_level_object})
    if(MINGW)
      set(fmoe_hide COMMAND ${CMAKE_OBJCOPY} --wildcard ${fmoe_seam} --set-section-flags .text$*=alloc,load,readonly,code)
      foreach(section IN ITEMS rdata xdata pdata)
        list(APPEND fmoe_hide --set-section-flags .${section}$*=alloc,load,readonly,data)
      endforeach()
      list(APPEND fmoe_hide --set-section-flags .data$*=alloc,load,data --set-section-flags .bss$*=alloc
        $<TARGET_OBJECTS:fmoe_dispatch_${level}> ${fmoe_level_object})
    endif()
    add_custom_command(OUTPUT ${fmoe_level_object} ${fmoe_hide}
      DEPENDS $<TARGET_OBJECTS:fmoe_dispatch_${level}>
      COMMENT "Hiding the inline functions of ${level}" VERBATIM)
    list(APPEND fmoe_level_objects ${fmoe_level_object})
  endforeach()

  add_library(fmoe_dispatch STATIC EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/dispatch.cpp ${fmoe_level_objects})
  add_library(fmoe::dispatch ALIAS fmoe_dispatch)
  set_target_properties(fmoe_dispatch PROPERTIES POSITION_INDEPENDENT_CODE ON)
  list(TRANSFORM fmoe_levels PREPEND fmoe_dispatch_ OUTPUT_VARIABLE fmoe_level_targets)
  add_dependencies(fmoe_dispatch ${fmoe_level_targets})
  target_link_libraries(fmoe_dispatch PUBLIC fmoe::fmoe)
  target_compile_definitions(fmoe_dispatch PUBLIC FMOE_SEPARATE_COMPILATION FMOE_DISPATCH)
endif()
