# SPDX-License-Identifier: MIT
# cmake -P expect.cmake FILE PROGRAM: runs the program and looks for each line of the file in what it prints. Runs of spaces
# count as one. Without that file the program must only succeed.
set(expected)
if(EXISTS ${CMAKE_ARGV3})
  file(STRINGS ${CMAKE_ARGV3} expected)
endif()
execute_process(COMMAND ${CMAKE_ARGV4} RESULT_VARIABLE status OUTPUT_VARIABLE output)
message("${output}")
if(NOT status EQUAL 0)
  message(FATAL_ERROR "exits with ${status}")
endif()
string(REGEX REPLACE " +" " " output "${output}")
foreach(text IN LISTS expected)
  string(FIND "${output}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "does not print: ${text}")
  endif()
endforeach()
