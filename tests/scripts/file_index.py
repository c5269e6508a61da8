#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares the table of folders in docs/architecture.md with the files: the rows of a folder must
name, in `code`, each unit that lies in it (header and source of one name are one unit, which is
named without extension, or with it), and no other. A name with a slash is a path in the tree.
Prints the differences, one per line, and last how many units were compared; exits with 1 if there
are any. A folder may be given instead of the tree."""

import re
import sys
from pathlib import Path

TOPS = ("ae", "conn", "bindings", "examples", "programs")
# Of the files of a folder, these are units: sources, scripts, and what is installed.
UNITS = (".h", ".cc", ".c", ".py", ".map", ".patch", ".service", ".socket", ".conf", "")
OTHERS = re.compile(r"\.|LICENSE|test_|__pycache__")  # but not files whose names begin like this


def units_of(folder):
    """{unit: its files}"""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in UNITS and not OTHERS.match(path.name):
            found.setdefault(path.stem, set()).add(path.name)
    return found


def rows_of(page):
    """{folder: the text of its rows}"""
    found = {}
    for folder, text in re.findall(r"^\| `([a-z_/]+)/` \| (.*) \|$", page, re.M):
        found[folder] = found.get(folder, "") + " " + text
    return found


def is_there(root, name):
    path = root / name
    return path.exists() or path.parent.is_dir() and any(each.stem == path.name for each in path.parent.iterdir())


def check(root):
    wrong, count = [], 0
    rows = rows_of((root / "docs/architecture.md").read_text(encoding="utf-8"))
    folders = [root / top for top in TOPS if (root / top).is_dir()]
    folders += sorted(each for top in folders for each in top.rglob("*") if each.is_dir())
    for folder in folders:
        name = str(folder.relative_to(root))
        units = units_of(folder)
        if not units or "__pycache__" in name:
            continue
        if name not in rows:
            wrong.append(f"{name}/ has no row")
            continue
        count += len(units)
        named = set(re.findall(r"`([^`]+)`", rows[name]))
        wrong += [f"{name}/: its row does not name {unit}" for unit, files in units.items()
                  if unit not in named and not files & named]
        for each in sorted(named):
            if "/" in each and not is_there(root, each):
                wrong.append(f"{name}/: its row names {each}, which is not in the tree")
            elif re.fullmatch(r"\w[\w.-]*", each) and each not in units and not (folder / each).is_file():
                wrong.append(f"{name}/: its row names {each}, which it does not have")
    return wrong, count


def main():
    wrong, count = check(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent.parent)
    print("\n".join(wrong + [f"{count} units"]))
    sys.exit(1 if wrong else 0)


main()
