# SPDX-License-Identifier: MIT
import os
import re
import shutil

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, cmake_layout
from conan.tools.files import copy, load, rmdir

required_conan_version = ">=2.4"


class Fmoe(ConanFile):
    name = "fmoe"
    description = "Header-only mixture-of-experts layers whose experts are stored as factors"
    license = "MIT"
    topics = ("mixture-of-experts", "einsum", "tensor", "simd", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    # with_eigen and with_xtensor bring a package; the others check that what their component needs is there.
    options = {name: [True, False] for name in ("cuda", "mpi", "with_eigen", "with_xtensor")}
    default_options = {name: False for name in options}
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*"
    no_copy_source = True
    generators = "CMakeToolchain"

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include", "fmoe", "version.hpp"))
        self.version = ".".join(re.findall(r"= (\d+);", text))

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        if self.options.with_xtensor:
            # It stands before xsimd, because it requires a certain version of xsimd. 0.24.7 requires an xsimd with
            # which it does not compile.
            self.requires("xtensor/[>=0.24.3 <0.24.7 || >=0.25 <1]")
        self.requires("xsimd/[>=8.1 <15]")
        self.requires("onetbb/[>=2021.8]")
        self.requires("nlohmann_json/[>=3.11 <4]")
        if self.options.with_eigen:
            self.requires("eigen/[>=3.4 <6]")

    def validate(self):
        check_min_cppstd(self, 20)
        # The toolkit of CUDA is no package: CMake looks for it where find_package asks for the component cuda.
        if self.options.cuda and not (os.environ.get("CUDACXX") or shutil.which("nvcc")):
            raise ConanInvalidConfiguration("the option cuda needs nvcc in PATH, or its path in CUDACXX")
        # A cluster has an MPI of its own, which CMake finds for the component mpi.
        if self.options.mpi and not (os.environ.get("MPI_HOME") or shutil.which("mpicxx")):
            raise ConanInvalidConfiguration("the option mpi needs mpicxx in PATH, or its folder in MPI_HOME")

    def package(self):
        cmake = CMake(self)
        cmake.configure(variables={"fmoe_FIND_DEPENDENCIES": False})
        cmake.install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "share", "licenses"))

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # find_package(fmoe) finds the package's own files, the same ones as without Conan.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "fmoe")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
