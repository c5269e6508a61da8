# SPDX-License-Identifier: BSD-3-Clause
"""finish.py FOLDER: corrects two errors in the output of Doxygen 1.9: for a class whose only inner
classes are private, it writes a link to a list of them that does not exist; and the navigation tree
looks for a group's functions on their file's page instead of the group's."""

import os
import re
import sys


def rewrite(path, change):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    changed = change(text)
    if changed != text:
        with open(path, "w", encoding="utf-8") as file:
            file.write(changed)


def no_list(text):
    if 'href="#nested-classes"' not in text or 'name="nested-classes"' in text:
        return text
    return re.sub(r'<a href="#nested-classes">[^<]*</a>(?: &#124;\n?)?', "", text)


def main():
    names = os.listdir(sys.argv[1])
    group_of = {}  # maps anchors to pages
    for name in names:
        if re.fullmatch(r"group__\w+\.html", name):
            with open(os.path.join(sys.argv[1], name), encoding="utf-8") as file:
                group_of.update(dict.fromkeys(re.findall(r'\bid="(gg?a\w+)"', file.read()), name))

    def to_group(text):
        return re.sub(r'"\w+\.html#(gg?a\w+)"',
                      lambda m: f'"{group_of[m[1]]}#{m[1]}"' if m[1] in group_of else m[0], text)

    for name in names:
        path = os.path.join(sys.argv[1], name)
        if name.endswith(".html"):
            rewrite(path, no_list)
        elif name.endswith(".js"):
            rewrite(path, to_group)


main()
