# SPDX-License-Identifier: BSD-3-Clause
"""recipe_conan.py WORK [OPTION=True|False...]: runs recipes/conan/conanfile.py like Conan, step by
step, without Conan: the modules that the recipe imports are simulated by a few lines here.

Packages into WORK/package. If RECIPE_MAKE is set, it is run instead of make, with its arguments.
"""

import contextlib
import fnmatch
import os
import shlex
import shutil
import subprocess
import sys
import types

asked = {"requires": [], "properties": {}, "environment": {}}


class ConanFile:
    def __init__(self, work, recipe, options):
        self.recipe_folder = os.path.dirname(recipe)
        self.export_sources_folder = self.source_folder = os.path.join(work, "sources")
        self.build_folder, self.package_folder = os.path.join(work, "build"), os.path.join(
            work, "package"
        )
        unknown = set(options) - set(self.options)
        if unknown:
            sys.exit(f"the recipe has no option {unknown.pop()}")
        for name, values in self.options.items():
            if (
                self.default_options[name] not in values
                or options.get(name, values[0]) not in values
            ):
                sys.exit(f"{name}: a value that the recipe does not list")
        self.options = types.SimpleNamespace(**{**self.default_options, **options})
        self.settings = types.SimpleNamespace(
            os="Linux", arch="x86_64", compiler="gcc", build_type="Release"
        )
        self.version = None
        self.cpp_info = types.SimpleNamespace(set_property=asked["properties"].__setitem__)

    def requires(self, reference, **traits):
        wrong = traits.keys() - {"headers", "libs", "run", "visible"}
        if wrong:
            sys.exit(f"requires() has no {wrong.pop()}")
        asked["requires"].append(reference)


class Autotools:
    def __init__(self, recipe):
        assert os.path.isdir(recipe.source_folder)

    def make(self, target, args):
        command = [*shlex.split(os.environ.get("RECIPE_MAKE", "make")), target, *args]
        print("make:", *command[1:], flush=True)
        subprocess.run(command, check=True)


class AutotoolsToolchain:
    def __init__(self, recipe):
        pass

    def generate(self):
        pass


class Environment:
    def define(self, name, value):
        asked["environment"][name] = value

    def vars(self, recipe):
        return {"LIBS": "-lwhat-a-static-library-needs"}


class AutotoolsDeps(AutotoolsToolchain):
    environment = Environment()


def copy(recipe, pattern, src, dst, excludes=()):
    src, copied = os.path.realpath(src), []
    for folder, _, files in os.walk(src):
        for name in files:
            path = os.path.relpath(os.path.join(folder, name), src)
            if fnmatch.fnmatch(path, pattern) and not any(
                fnmatch.fnmatch(path, one) for one in excludes
            ):
                os.makedirs(os.path.dirname(os.path.join(dst, path)), exist_ok=True)
                shutil.copy2(
                    os.path.join(src, path), os.path.join(dst, path), follow_symlinks=False
                )
                copied.append(path)
    return copied


def load(recipe, path):
    with open(path, encoding="utf-8") as file:
        return file.read()


@contextlib.contextmanager
def chdir(recipe, folder):
    before = os.getcwd()
    os.chdir(folder)
    yield
    os.chdir(before)


class ConanInvalidConfiguration(Exception):
    pass


def play(name, **content):
    module = sys.modules.setdefault(name, types.ModuleType(name))
    module.__dict__.update(content)


def main():
    work, options = os.path.abspath(sys.argv[1]), dict(word.split("=") for word in sys.argv[2:])
    for name in ("conan.tools",):
        play(name)
    play("conan", ConanFile=ConanFile)
    play("conan.errors", ConanInvalidConfiguration=ConanInvalidConfiguration)
    play("conan.tools.build", check_min_cppstd=lambda recipe, standard: None)
    play("conan.tools.files", copy=copy, load=load, chdir=chdir)
    play(
        "conan.tools.gnu",
        Autotools=Autotools,
        AutotoolsDeps=AutotoolsDeps,
        AutotoolsToolchain=AutotoolsToolchain,
    )
    play("conan.tools.layout", basic_layout=lambda recipe, src_folder: None)
    path = os.path.abspath("recipes/conan/conanfile.py")
    content = {"__name__": "conanfile", "__file__": path}
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), content)  # like Conan
    recipe = content["AeconnConan"](
        work, path, {name: value == "True" for name, value in options.items()}
    )

    recipe.set_version()
    recipe.export_sources()
    recipe.layout()
    recipe.validate()
    recipe.requirements()
    os.makedirs(recipe.build_folder, exist_ok=True)
    recipe.generate()
    recipe.build()
    recipe.package()
    recipe.package_info()
    for folder in (*recipe.cpp_info.includedirs, "licenses"):
        if not os.listdir(os.path.join(recipe.package_folder, folder)):
            sys.exit(f"{folder} of the package is empty")
    kind = ".so" if recipe.options.shared else ".a"
    for library in recipe.cpp_info.libs:
        if not os.path.exists(os.path.join(recipe.package_folder, "lib", f"lib{library}{kind}")):
            sys.exit(f"the package has no lib{library}{kind}")
    recipe.settings.os = "Windows"
    try:
        recipe.validate()
        sys.exit("Windows is not refused")
    except ConanInvalidConfiguration:
        pass
    print("version:", recipe.version)
    print("requires:", *asked["requires"])
    print("target:", asked["properties"]["cmake_target_name"])
    print("LDLIBS:", asked["environment"].get("LDLIBS"))


main()
