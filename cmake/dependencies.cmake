# SPDX-License-Identifier: MIT
# Finds packages without naming a version, since their version files refuse newer major versions and ranges, and compares
# by hand.

# Finds `package`, at least of version `minimum`, and checks that it made `target`: a plain target name that does not exist
# would silently become a -l flag.
macro(fmoe_find package minimum target)
  if(NOT TARGET ${target})
    find_package(${package} CONFIG REQUIRED GLOBAL)
    if(${package}_VERSION VERSION_LESS ${minimum})
      message(FATAL_ERROR "fmoe needs ${package} ${minimum} or newer; ${${package}_DIR} has ${${package}_VERSION}")
    endif()
    if(NOT TARGET ${target})
      message(FATAL_ERROR "${${package}_DIR} defines no target ${target}")
    endif()
  endif()
endmacro()

# What fmoe::fmoe links.
macro(fmoe_find_dependencies)
  # Debian 12's xsimd links xtl without looking for it; later releases do not.
  find_package(xtl CONFIG QUIET GLOBAL)
  fmoe_find(xsimd 8.1 xsimd)
  get_target_property(fmoe_xsimd_links xsimd INTERFACE_LINK_LIBRARIES)
  if("xtl" IN_LIST fmoe_xsimd_links AND NOT TARGET xtl)
    message(FATAL_ERROR "${xsimd_DIR} links xtl, which is not installed")
  endif()
  fmoe_find(TBB 2021.8 TBB::tbb)
  fmoe_find(nlohmann_json 3.11 nlohmann_json::nlohmann_json)
endmacro()
