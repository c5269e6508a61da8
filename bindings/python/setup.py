# SPDX-License-Identifier: BSD-3-Clause
"""The version of the package is that of the project, VERSION in the Makefile above this folder. A
source distribution has no Makefile, but the PKG-INFO that was written with it.

The licence is not in pyproject.toml because setuptools 77 warns of the only form that older
releases know.
"""

import email
import pathlib
import re
import sys

from setuptools import setup


def version() -> str:
    here = pathlib.Path(__file__).resolve().parent
    information = here / "PKG-INFO"
    if information.exists():
        return str(email.message_from_string(information.read_text(encoding="utf-8"))["Version"])
    for folder in here.parents:
        makefile = folder / "Makefile"
        if makefile.exists() and (folder / "bindings" / "python").is_dir():
            found = re.search(r"^VERSION *:= *(\S+)$", makefile.read_text(encoding="utf-8"), re.M)
            if found:
                return found.group(1)
    sys.exit(f"{here} has no version: build the package in aeconn's tree, or from an sdist")


setup(version=version(), license="BSD-3-Clause")
