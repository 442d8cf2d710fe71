# SPDX-License-Identifier: MIT
# find_package(fmoe) makes fmoe::fmoe; COMPONENTS cuda dispatch eigen mpi xtensor add fmoe::cuda,
# fmoe::dispatch, fmoe::eigen, fmoe::mpi and fmoe::xtensor.
include(${CMAKE_CURRENT_LIST_DIR}/fmoe-dependencies.cmake)

foreach(fmoe_component IN ITEMS fmoe LISTS fmoe_FIND_COMPONENTS)
  set(fmoe_problems "")
  fmoe_find_dependencies(${fmoe_component})
  if(NOT fmoe_problems)
    include(${CMAKE_CURRENT_LIST_DIR}/fmoe-${fmoe_component}-targets.cmake)
    set(fmoe_${fmoe_component}_FOUND TRUE)
  else()
    set(fmoe_${fmoe_component}_FOUND FALSE)
    if(fmoe_component STREQUAL "fmoe" OR fmoe_FIND_REQUIRED_${fmoe_component})
      set(fmoe_FOUND FALSE)
      list(JOIN fmoe_problems "\n" fmoe_NOT_FOUND_MESSAGE)
      return()
    endif()
  endif()
endforeach()
