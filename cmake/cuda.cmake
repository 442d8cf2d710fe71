# SPDX-License-Identifier: MIT
# Makes fmoe::cuda: fmoe::fmoe, and in each target that links it the kernels of GPUs, compiled once
# with nvcc, or as emulated blocks where CMake finds no CUDA compiler. With fmoe_CUDA=ON there must be a CUDA compiler.
if(NOT TARGET fmoe::cuda)
  include(CheckLanguage)
  check_language(CUDA)
  if(fmoe_CUDA AND NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "fmoe::cuda: fmoe_CUDA asks for kernels of GPUs, and CMake finds no CUDA compiler: set CMAKE_CUDA_COMPILER.")
  endif()
  add_library(fmoe::cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(fmoe::cuda INTERFACE fmoe::fmoe)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    target_sources(fmoe::cuda INTERFACE ${CMAKE_CURRENT_LIST_DIR}/cuda.cu)
    # C++20 by its flag, because CMake 3.25 does not know that nvcc 13 has it. A constexpr function of
    # the host runs on the device, too, and no warning of nvcc is harmless.
    target_compile_options(fmoe::cuda INTERFACE
      "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr;-Werror=all-warnings>")
    target_link_libraries(fmoe::cuda INTERFACE CUDA::cudart)
    if(TARGET CUDA::cublasLt)  # for the policy fp32
      target_link_libraries(fmoe::cuda INTERFACE CUDA::cublasLt)
      target_compile_definitions(fmoe::cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:FMOE_CUBLASLT>)
    endif()
  else()
    message(STATUS "fmoe::cuda: there is no CUDA compiler, so kernels run on emulated blocks")
    target_sources(fmoe::cuda INTERFACE ${CMAKE_CURRENT_LIST_DIR}/cuda.cpp)
  endif()
endif()
