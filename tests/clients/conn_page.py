# SPDX-License-Identifier: BSD-3-Clause
"""conn_page.py OPTIONS PAGE: prints options that conn(7) in man(1) lacks or has otherwise.

OPTIONS is the output of `aeconn-doctor --write-page options`; PAGE has no indentation.
"""

import sys


def words(text):
    return " ".join(text.replace("`", "").split())


def chapters(lines):
    """{title: [line]}"""
    out, title = {}, None
    for line in lines:
        if line and line == line.upper() and line.replace(" ", "").isalpha():
            title = line
        out.setdefault(title, []).append(words(line))
    return out


def part(lines, tuning):
    """The lines before the title Tuning, or those below it."""
    end = lines.index("Tuning") if "Tuning" in lines else len(lines)
    return lines[end:] if tuning else lines[:end]


def entry(option):
    """The lines of an option's entry."""
    _, name, side, default, values, meaning, _, _ = option
    side = {"L": " (listeners)", "C": " (connecting)"}.get(side, "")
    default = f"Default: {default}. " if default else ""
    values = "yes, no" if values == "flag" else values
    return [name + side, meaning + ".", f"{default}Values: {values}."]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        options = [line.rstrip("\n").split("\t") for line in file]
    with open(sys.argv[2], encoding="utf-8") as file:
        page = chapters(file.read().split("\n"))
    for option in options:
        wanted = [words(line) for line in entry(option)]
        # man(1) prints the text after a short name on the same line.
        for form in (wanted, [" ".join(wanted[:2]), wanted[2]]):
            lines = part(page.get(option[0].upper(), []), option[6] == "tuning")
            if any(lines[i:i + len(form)] == form for i in range(len(lines))):
                break
        else:
            print(option[0], option[1])


main()
