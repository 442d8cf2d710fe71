# SPDX-License-Identifier: MIT
# Writes one source that holds several test files, so that what they share is parsed and compiled once:
#
#   cmake -DOUTPUT=SOURCE "-DFILES=a_test.cpp;b_test.cpp" -P tests/join.cmake     in the root of the repository
#
# Each file stands in a namespace of its own, so that its helpers may have any name. The headers of all files come first. A header
# is read once in a translation unit, so a file that includes it again brings nothing of it into its namespace.
cmake_minimum_required(VERSION 3.24...4.0)
set(headers "")
set(contents "")
foreach(file IN LISTS FILES)
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET file STEM name)
  # The lines before the first that is neither a directive nor empty nor a comment.
  file(STRINGS ${file} lines REGEX "^[^ /]")
  set(depth 0)
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "^#")
      break()
    elseif(line MATCHES "^# *if")
      math(EXPR depth "${depth} + 1")
    elseif(line MATCHES "^# *endif")
      math(EXPR depth "${depth} - 1")
    elseif(line MATCHES "^# *include \"([^\"]+)\"(.*)")
      set(header ${CMAKE_MATCH_1})
      cmake_path(ABSOLUTE_PATH header BASE_DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} NORMALIZE)
      if(EXISTS ${header})
        cmake_path(RELATIVE_PATH header)
        set(line "#include \"${header}\"${CMAKE_MATCH_2}")
      endif()
    endif()
    string(APPEND headers "${line}\n")
  endforeach()
  if(NOT depth EQUAL 0)
    message(FATAL_ERROR "${file}: an #if with an #include in it does not end before the code begins")
  endif()
  string(APPEND contents "\nnamespace ${name} {\n#include \"${file}\"\n}\n")
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "${headers}${contents}" @ONLY)
