# SPDX-License-Identifier: MIT
import os

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, get, save
from conan.tools.layout import basic_layout

required_conan_version = ">=2.4"

# What find_package(fmoe) makes of an MPI; cmake/engine.cmake and cmake/cuda.cmake are the library's own.
MPI = """\
if(NOT TARGET fmoe::mpi)
  find_package(MPI 3.0 REQUIRED COMPONENTS CXX)
  add_library(fmoe::mpi INTERFACE IMPORTED)
  target_link_libraries(fmoe::mpi INTERFACE fmoe::fmoe MPI::MPI_CXX)
endif()
"""
MODULES = os.path.join("lib", "cmake", "fmoe")


class FmoeConan(ConanFile):
    name = "fmoe"
    description = "Header-only mixture-of-experts layers whose experts are stored as factors"
    license = "MIT"
    url = "https://github.com/conan-io/conan-center-index"
    topics = ("mixture-of-experts", "einsum", "tensor", "simd", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    # with_eigen and with_xtensor bring a package; the others make a target: fmoe::mpi, fmoe::cuda. MPI and CUDA are those of the
    # machine.
    options = {name: [True, False] for name in ("with_eigen", "with_xtensor", "mpi", "cuda")}
    default_options = {name: False for name in options}
    no_copy_source = True

    def layout(self):
        basic_layout(self, src_folder="src")

    def requirements(self):
        # Conan Center takes no ranges. fmoe's tests ran with Debian 13's packages, of these versions; its oneTBB is 2022.1.0.
        self.requires("xsimd/13.2.0")
        self.requires("onetbb/2022.0.0")
        self.requires("nlohmann_json/3.11.3")
        if self.options.with_eigen:
            self.requires("eigen/3.4.0")
        if self.options.with_xtensor:
            self.requires("xtensor/0.25.0")

    def package_id(self):
        self.info.clear()

    def validate(self):
        check_min_cppstd(self, 20)

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def build(self):
        pass  # the consumer's target compiles what is not in headers

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*.hpp", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        for name in ("engine.cmake", "engine/*.cpp", "at_level.cpp", "cuda.cmake", "cuda.cpp", "cuda.cu"):
            copy(self, name, os.path.join(self.source_folder, "cmake"), os.path.join(self.package_folder, MODULES))
        save(self, os.path.join(self.package_folder, MODULES, "mpi.cmake"), MPI)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "fmoe")
        self.cpp_info.set_property("cmake_target_name", "fmoe::header_only")
        self.cpp_info.set_property("pkg_config_name", "fmoe")
        self.cpp_info.set_property("cmake_build_modules", [os.path.join(MODULES, f"{name}.cmake")
                                                           for name in ("engine", "mpi", "cuda") if self.options.get_safe(name, True)])
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["m", "pthread"]
