#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares ae/ and conn/ with the list of rooms (layers) beside this file: each file must be in
one, include only what its room may, and include cycles must not exceed the list. Prints the
picture, then the differences, one per line; exits with 1 if there are any. A folder may be given
instead of the tree."""

import collections
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MOST_FLOORS = 9


class Rooms:
    """The list."""

    def __init__(self, text):
        self.may, self.public, self.up, self.knots = {}, {}, [], []
        for line in text.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if line.startswith("up "):
                self.up.append(tuple(line.split()[1:]))
            elif line.startswith("knot "):
                self.knots.append(set(line.split(":")[1].split()))
            else:
                room, headers, may = (part.split() for part in line.split("|"))
                above = [each for each in may if each not in self.may]
                if above:
                    sys.exit(f"{room[0]} names rooms that are not above it in the list: {above}")
                self.may[room[0]] = may
                self.public.update({f"conn/{name}": room[0] for name in headers})

    def of(self, file):
        """The room of a file, None if it has none."""
        folder, stem = os.path.dirname(file), os.path.splitext(file)[0]
        return self.public.get(stem) if folder == "conn" else folder if folder in self.may else None

    def floors(self):
        floor = {}
        for room, may in self.may.items():
            floor[room] = 1 + max((floor[each] for each in may), default=0)
        return floor


def includes(root):
    """{file: what it includes of ae/ and conn/}"""
    found = {}
    for folder in ("ae", "conn"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cc"):
                text = path.read_text(encoding="utf-8")
                found[str(path.relative_to(root))] = re.findall(r'^#include "((?:ae|conn)/[^"]*)"', text, re.M)
    return found


def knots(graph):
    """Groups of nodes that reach each other (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            group = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(group) > 1:
                found.append(set(group))

    for node in list(graph):
        if node not in number:
            visit(node)
    return found


def check(root, rooms):
    wrong = []
    files = includes(root)
    used, units = set(), collections.defaultdict(set)
    for file, included in files.items():
        room = rooms.of(file)
        if room is None:
            wrong.append(f"{file} is in no room")
            continue
        if file.endswith(".cc") and file.count("/") == 1:
            wrong.append(f"{file} would not be compiled: sources lie in the folders of the rooms")
        for other in included:
            its = rooms.of(other)
            if its is None:
                wrong.append(f"{file} includes {other}, which is in no room")
                continue
            unit, second = os.path.splitext(os.path.basename(file))[0], os.path.splitext(os.path.basename(other))[0]
            if (room, unit) != (its, second):
                units[(room, unit)].add((its, second))
            if its != room and its not in rooms.may[room]:
                if (room, its) in rooms.up:
                    used.add((room, its))
                else:
                    wrong.append(f"{file} includes {other}: {room} may not include {its}")
    wrong += [f"{a} includes nothing of {b} any more: its line `up` can go" for a, b in rooms.up if (a, b) not in used]
    tied = [{unit for _, unit in group} for group in knots(units) if len(group) > 2]
    wrong += [f"these include each other: {' '.join(sorted(group))}" for group in tied
              if not any(group == known for known in rooms.knots)]
    wrong += [f"this knot is no more, or smaller: {' '.join(sorted(known))}" for known in rooms.knots
              if known not in tied]
    return wrong, files


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent)
    rooms = Rooms((HERE / "rooms").read_text(encoding="utf-8"))
    wrong, files = check(root, rooms)
    floors = rooms.floors()
    for level in range(max(floors.values()), 0, -1):
        print(f"{level}  " + "  ".join(room for room in floors if floors[room] == level))
    print(f"{len(rooms.may)} rooms on {max(floors.values())} floors, {len(files)} files, "
          f"{len(rooms.up)} includes run up, {len(rooms.knots)} knots of more than two, "
          f"the largest of {max(map(len, rooms.knots), default=0)}")
    if max(floors.values()) > MOST_FLOORS:
        wrong.append(f"more than {MOST_FLOORS} floors")
    print("\n".join(wrong), end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)


main()
