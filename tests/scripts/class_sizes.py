#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares the classes in the headers of ae/ and conn/ with the limits: 40 functions, 8 bools.
All functions that a class declares count, private, inline and overriding ones too; those of its
bases and nested classes do not. Known exceptions are in the list beside this file. Prints the
differences, one per line, then the numbers of classes; exits with 1 if there are differences. A
folder and a list may be given instead of the tree and its list. Needs Universal Ctags."""

import collections
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MOST_FUNCTIONS, MOST_BOOLS = 40, 8


def counts(root):
    """{(header, class): [functions, bools]}"""
    run = subprocess.run(
        ["ctags", "-R", "--languages=C++", "--langmap=C++:+.h", "--c++-kinds=fpm", "--fields=+nKst", "-f", "-",
         "ae", "conn"], cwd=root, capture_output=True, text=True)
    if run.returncode != 0 or not run.stdout:
        sys.exit(f"ctags failed: {run.stderr.strip()}")
    found = collections.defaultdict(lambda: [0, 0])
    for line in run.stdout.splitlines():
        if line.startswith("!"):
            continue
        _, file, _, kind, *fields = line.split("\t")
        named = dict(field.split(":", 1) for field in fields if ":" in field)
        owner = named.get("class") or named.get("struct")
        if owner is None or not file.endswith(".h"):
            continue
        name = re.sub(r"^.*AECONN_ABI::", "", owner)
        if kind in ("function", "prototype"):
            found[file, name][0] += 1
        elif named.get("typeref") == "typename:bool":
            found[file, name][1] += 1
    return found


def exceptions(text):
    """{(header, class): [functions, bools]}"""
    rows = (line.split("|") for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {(row[0].strip(), row[1].strip()): [int(row[2]), int(row[3])] for row in rows}


def check(found, known):
    wrong = []
    for (file, name), (functions, bools) in sorted(found.items()):
        above = functions > MOST_FUNCTIONS or bools > MOST_BOOLS
        has = f"{file}: {name} has {functions} functions and {bools} bools"
        listed = known.get((file, name))
        if listed is None:
            if above:
                wrong.append(f"{has}, more than {MOST_FUNCTIONS} or {MOST_BOOLS}")
        elif not above:
            wrong.append(f"{has}: it can leave the list")
        elif functions > listed[0] or bools > listed[1]:
            wrong.append(f"{has}, more than the list's {listed[0]} and {listed[1]}")
        elif [functions, bools] != listed:
            wrong.append(f"{has}, fewer than in the list: change the list")
    return wrong + [f"{file} has no class {name}: it can leave the list" for file, name in sorted(known)
                    if (file, name) not in found]


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent)
    listed = Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "class_sizes"
    known = exceptions(listed.read_text(encoding="utf-8"))
    found = counts(root)
    wrong = check(found, known)
    print("\n".join(wrong), end="\n" if wrong else "")
    print(f"{len(found)} classes, {len(known)} of them above the limits")
    sys.exit(1 if wrong else 0)


main()
