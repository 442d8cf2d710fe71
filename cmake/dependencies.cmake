# SPDX-License-Identifier: MIT
# The components and the packages that each links: for the build tree and, installed as
# fmoe-dependencies.cmake, for fmoe-config.cmake. Packages are found without a version and compared
# by hand, because their version files refuse newer major versions and ranges.

set(fmoe_cmake_dir ${CMAKE_CURRENT_LIST_DIR})

# Finds `package`, at least of version `minimum`, unless the user has found it, and checks that
# there is `target`: a plain target name that does not exist would silently become a -l flag. Adds
# faults to fmoe_problems.
macro(fmoe_look_for package minimum target)
  if(NOT TARGET ${target})
    find_package(${package} CONFIG QUIET)
  endif()
  if(NOT TARGET ${target} AND NOT ${package}_FOUND)
    list(APPEND fmoe_problems
      "fmoe needs ${package} ${minimum} or newer, which was not found: set CMAKE_PREFIX_PATH or ${package}_DIR.")
  elseif(${package}_VERSION AND ${package}_VERSION VERSION_LESS ${minimum})
    list(APPEND fmoe_problems "fmoe needs ${package} ${minimum} or newer, and ${${package}_DIR} has ${${package}_VERSION}.")
  elseif(NOT TARGET ${target})
    list(APPEND fmoe_problems "fmoe needs the target ${target}, which ${${package}_DIR} does not define.")
  endif()
endmacro()

macro(fmoe_find_dependencies component)
  if("${component}" STREQUAL "fmoe")
    # The xsimd of Debian 12 links xtl without finding it; later releases do not.
    find_package(xtl CONFIG QUIET)
    fmoe_look_for(xsimd 8.1 xsimd)
    if(TARGET xsimd)
      get_target_property(fmoe_xsimd_links xsimd INTERFACE_LINK_LIBRARIES)
      if("xtl" IN_LIST fmoe_xsimd_links AND NOT TARGET xtl)
        list(APPEND fmoe_problems "fmoe needs xtl, which ${xsimd_DIR} links and which was not found.")
      endif()
    endif()
    fmoe_look_for(TBB 2021.8 TBB::tbb)
    fmoe_look_for(nlohmann_json 3.11 nlohmann_json::nlohmann_json)
  elseif("${component}" STREQUAL "eigen")
    fmoe_look_for(Eigen3 3.4 Eigen3::Eigen)
  elseif("${component}" STREQUAL "xtensor")
    fmoe_look_for(xtensor 0.24 xtensor)
  elseif("${component}" STREQUAL "mpi")
    # Open MPI or MPICH, whichever mpicxx is; MPI_CXX_COMPILER=mpicxx.mpich says another one.
    find_package(MPI QUIET COMPONENTS CXX)
    if(NOT MPI_CXX_FOUND)
      list(APPEND fmoe_problems
        "fmoe::mpi needs an MPI such as Open MPI or MPICH, which was not found: set MPI_CXX_COMPILER to its mpicxx.")
    elseif(MPI_CXX_VERSION AND MPI_CXX_VERSION VERSION_LESS 3.0)
      list(APPEND fmoe_problems "fmoe::mpi needs MPI 3.0 or newer, and ${MPI_CXX_COMPILER} has ${MPI_CXX_VERSION}.")
    endif()
  elseif("${component}" STREQUAL "cuda")
    # cuda.cmake looks for a CUDA compiler, and goes without one.
  else()
    list(APPEND fmoe_problems "fmoe has no component ${component}: there are fmoe, cuda, eigen, mpi and xtensor.")
  endif()
endmacro()

# Makes fmoe::cuda, or the target of another component: fmoe::fmoe with one more package.
macro(fmoe_add_component component)
  set(fmoe_package_of_eigen Eigen3::Eigen)
  set(fmoe_package_of_mpi MPI::MPI_CXX)
  set(fmoe_package_of_xtensor xtensor)
  if("${component}" STREQUAL "cuda")
    include(${fmoe_cmake_dir}/cuda.cmake)
  elseif(NOT TARGET fmoe::${component})
    add_library(fmoe::${component} INTERFACE IMPORTED GLOBAL)
    target_link_libraries(fmoe::${component} INTERFACE fmoe::fmoe ${fmoe_package_of_${component}})
  endif()
endmacro()
