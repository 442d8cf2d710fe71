# SPDX-License-Identifier: MIT
# fmoe_inspect, to install: with the examples it is built there.
if(NOT TARGET example_inspect)
  add_executable(example_inspect ${PROJECT_SOURCE_DIR}/examples/inspect.cpp)
  target_link_libraries(example_inspect PRIVATE fmoe::fmoe)
  set_target_properties(example_inspect PROPERTIES OUTPUT_NAME fmoe_inspect)
endif()
install(TARGETS example_inspect RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
