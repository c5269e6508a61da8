# SPDX-License-Identifier: BSD-3-Clause
"""aeconn for Conan 2, built of the tree that this file lies in:
`conan create recipes/conan -s compiler.cppstd=20`."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.files import chdir, copy, load
from conan.tools.gnu import Autotools, AutotoolsDeps, AutotoolsToolchain
from conan.tools.layout import basic_layout

required_conan_version = ">=2.0"


class AeconnConan(ConanFile):
    name = "aeconn"
    description = "An event loop, and connections over TCP, Unix sockets, TLS and RDMA"
    license = "BSD-3-Clause"
    topics = ("event-loop", "network", "rdma", "tls", "valkey")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "tls": [True, False], "rdma": [True, False]}
    default_options = {"shared": False, "tls": True, "rdma": True}

    @property
    def _tree(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        self.version = self.version or re.search(
            r"^VERSION *:= *(\S+)", load(self, os.path.join(self._tree, "Makefile")), re.M
        ).group(1)

    def export_sources(self):
        copy(
            self,
            "*",
            self._tree,
            self.export_sources_folder,
            excludes=("build/*", ".git/*", "tests/fuzz/*"),
        )

    def layout(self):
        basic_layout(self, src_folder=".")

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("aeconn is for Linux: epoll, and rdma-core")
        check_min_cppstd(self, 20)

    def requirements(self):
        self.requires("libev/4.33")
        self.requires("fmt/[>=9 <12]")
        if self.options.tls:
            self.requires("openssl/[>=3 <4]")
        if self.options.rdma:
            # For its headers. The libraries are loaded from the system when rdma is first used: a
            # static libibverbs would have none of the providers that drive cards.
            self.requires("rdma-core/[>=44]", libs=False, run=False)

    def generate(self):
        AutotoolsToolchain(self).generate()
        dependencies = AutotoolsDeps(self)
        # The Makefile has a list LIBS of its own; what static dependencies need besides follows it.
        environment = dependencies.environment
        environment.define("LDLIBS", environment.vars(self).get("LIBS", ""))
        dependencies.generate()

    @property
    def _variables(self):
        """The Makefile's own; compiler and flags come from the environment that generate() writes."""

        def word(option):
            return "yes" if option else "no"

        return [
            f"TLS={word(self.options.tls)}",
            f"RDMA={word(self.options.rdma)}",
            f"LINKAGE={'shared' if self.options.shared else 'static'}",
            f"CONFIG={'debug' if self.settings.build_type == 'Debug' else 'release'}",
            "PREFIX=/",
            f"DESTDIR={self._staged}",
        ]

    @property
    def _staged(self):
        return os.path.join(self.build_folder, "staged")

    def build(self):
        with chdir(self, self.source_folder):
            Autotools(self).make(target="install-libraries", args=self._variables)

    def package(self):
        # The files for pkg-config and CMake are Conan's own, of package_info().
        for folder in ("include", "lib"):
            copy(
                self,
                "*",
                os.path.join(self._staged, folder),
                os.path.join(self.package_folder, folder),
                excludes=("pkgconfig/*", "cmake/*"),
            )
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.libs = ["aeconn"]
        self.cpp_info.includedirs = ["include/aeconn", "include"]
        self.cpp_info.set_property("pkg_config_name", "aeconn")
        self.cpp_info.set_property("cmake_file_name", "aeconn")
        self.cpp_info.set_property("cmake_target_name", "aeconn::aeconn")
        self.cpp_info.system_libs = ["pthread"]
