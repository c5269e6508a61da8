# SPDX-License-Identifier: BSD-3-Clause
"""finish.py FOLDER: takes back what Doxygen 1.9 writes though it is not so: a class whose only inner
classes are private has a link to the list of them, which is not there."""

import os
import re
import sys


def main():
    for name in os.listdir(sys.argv[1]):
        path = os.path.join(sys.argv[1], name)
        if not name.endswith(".html"):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if 'href="#nested-classes"' in text and 'name="nested-classes"' not in text:
            text = re.sub(r'<a href="#nested-classes">[^<]*</a>(?: &#124;\n?)?', "", text)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)


main()
