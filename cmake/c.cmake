# SPDX-License-Identifier: MIT
# Makes fmoe::c, the shared library libfmoe with the functions of fmoe/c/fmoe.h, and with the kernels of all CPUs. No other symbol
# leaves it. Its soname has the release, because before 1.0 each release may change the interface.
if(NOT TARGET fmoe::c)
  add_library(fmoe_c SHARED ${CMAKE_CURRENT_LIST_DIR}/c.cpp)
  add_library(fmoe::c ALIAS fmoe_c)
  target_link_libraries(fmoe_c PRIVATE fmoe::fmoe)
  target_include_directories(fmoe_c INTERFACE ${PROJECT_SOURCE_DIR}/include)
  set_target_properties(fmoe_c PROPERTIES OUTPUT_NAME fmoe VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_options(fmoe_c PRIVATE -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/c.map -Wl,--no-undefined)
  set_target_properties(fmoe_c PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/c.map)
endif()
