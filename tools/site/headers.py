# SPDX-License-Identifier: BSD-3-Clause
"""headers.py LIST SITE HEADER...: checks that each installed header has a page in the site, or a
row in LIST (tools/site/inner) that says why not, and that each row matches an installed header."""

import fnmatch
import glob
import os
import re
import sys


def rows_of(path):
    """Returns pairs of a pattern and a reason."""
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    return [tuple(part.strip() for part in (line + "|").split("|")[:2]) for line in lines]


def pages_of(site):
    """Returns the headers that have a page."""
    found = set()
    for name in glob.glob(os.path.join(site, "*_8h.html")):
        with open(name, encoding="utf-8") as file:
            found |= set(re.findall(r"<title>[^:<]*: (\S+) File Reference</title>", file.read()))
    return found


def is_of(header, pattern):
    """Matches like a shell: a star does not match a slash."""
    return header.count("/") == pattern.count("/") and fnmatch.fnmatchcase(header, pattern)


def faults(rows, pages, headers):
    for pattern, reason in rows:
        if not reason:
            yield f"{pattern}: no reason why it is not on the site"
        if not any(is_of(header, pattern) for header in headers):
            yield f"{pattern}: no such header is installed"
    for header in headers:
        inner = any(is_of(header, pattern) for pattern, _ in rows)
        if not inner and header not in pages:
            yield f"{header}: not on the site, for want of a comment at its top?"
        if inner and header in pages:
            yield f"{header}: on the site, and tools/site/inner says that it is not"


def main():
    said = list(faults(rows_of(sys.argv[1]), pages_of(sys.argv[2]), sys.argv[3:]))
    for line in said:
        print(line, file=sys.stderr)
    sys.exit(1 if said else 0)


main()
