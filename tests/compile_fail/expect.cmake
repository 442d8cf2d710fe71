# SPDX-License-Identifier: MIT
# cmake -P expect.cmake FILE COMPILER FLAGS...: with FMOE_MISUSE, FILE does not compile: the compiler
# prints one error, which contains the sentence of the line "// expect: <sentence>", and its output
# is short.
set(longest 25)  # lines that the compiler prints, without those that it quotes

set(command)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 4 ${last})
  list(APPEND command "${CMAKE_ARGV${i}}")
endforeach()
set(file ${CMAKE_ARGV3})
# The mistakes show without planner and kernels, in a third of the time. (It is no argument, because
# CMake would take -D for its own.)
list(APPEND command -DFMOE_SEPARATE_COMPILATION -fsyntax-only -fno-diagnostics-color ${file})

file(STRINGS ${file} sentence REGEX "^// expect: " LIMIT_COUNT 1)
string(REGEX REPLACE "^// expect: " "" sentence "${sentence}")
string(REPLACE "\\;" ";" sentence "${sentence}")
if(sentence STREQUAL "")
  message(FATAL_ERROR "${file} has no line '// expect: <sentence>'")
endif()

execute_process(COMMAND ${command} -DFMOE_MISUSE RESULT_VARIABLE status ERROR_VARIABLE output)
message("${output}")
if(status EQUAL 0)
  message(FATAL_ERROR "compiles with FMOE_MISUSE: ${file}")
endif()
string(FIND "${output}" "${sentence}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "the sentence is missing: ${sentence}")
endif()
string(REGEX MATCHALL " error: " errors "${output}")
list(LENGTH errors count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "not one error: ${count} errors")
endif()
# Lines of the program that the compiler quotes begin with a space. Newer releases quote one for each step of an
# instantiation.
string(REGEX MATCHALL "\n[^ \n]" lines "\n${output}")
list(LENGTH lines count)
if(count GREATER longest)
  message(FATAL_ERROR "too long: ${count} lines of errors, at most ${longest}")
endif()
