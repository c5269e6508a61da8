# SPDX-License-Identifier: BSD-3-Clause
"""links.py FOLDER: follows all links within the site in FOLDER.

Checks each href, src and anchor of the pages, the targets of the search and of the navigation tree,
duplicate identifiers, and unprocessed markup. Prints the problems and last "pages N, links N,
search N, wrong N"; status 1 if there are problems.
"""

import os
import re
import sys
import urllib.parse
from html.parser import HTMLParser

# Elements without an end tag.
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"}
AS_IT_IS = {"code", "pre", "tt", "script", "style", "title"}
# Ids that Doxygen uses twice: in its frame of a page, or for a member described in two places.
TWICE = re.compile(r"(MSearch\w+|r_\w+|nav-\w+|navrow\d|a[0-9a-f]{32,})$")


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.path, self.links, self.ids, self.wrong, self.open = path, [], set(), [], []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())
        self.close()
        for tag, line in self.open:
            self.wrong.append((line, f"<{tag}> has no end"))

    def complain(self, text):
        self.wrong.append((self.getpos()[0], text))

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append((tag, self.getpos()[0]))
        for value in {value for name, value in attrs
                      if name == "id" or (name == "name" and tag == "a")}:
            if value in self.ids and not TWICE.match(value):
                self.complain(f"the identifier {value} is there twice")
            self.ids.add(value)
        self.links += [(self.getpos()[0], value or "") for name, value in attrs
                       if name in ("href", "src")]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        # The end tag of a paragraph may be missing.
        while self.open and self.open[-1][0] in ("p", "li", "dd", "dt") and self.open[-1][0] != tag:
            self.open.pop()
        if self.open and self.open[-1][0] == tag:
            self.open.pop()
        elif tag != "p":
            self.complain(f"</{tag}> ends <{self.open[-1][0] if self.open else 'nothing'}>")

    def handle_data(self, data):
        if any(tag in AS_IT_IS for tag, _ in self.open):
            return
        for text in re.findall(r"\]\([\w./#-]+\)|```|@ref\b|\\ref\b|\{#\w+", data):
            self.complain(f"was to be marked up: {text}")


def local(target):
    return not re.match(r"[a-z]+:|//", target)


def links_of_scripts(folder):
    """The targets of the navigation tree and the search: strings that name a page."""
    found = {"tree": [], "search": []}
    for where, folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            in_search = os.path.basename(where) == "search"
            tree = not in_search and name not in ("jquery.js", "menu.js", "resize.js", "navtree.js",
                                                   "dynsections.js", "clipboard.js", "cookie.js")
            if not name.endswith(".js") or not (in_search or tree):
                continue
            with open(path, encoding="utf-8") as file:
                for target in re.findall(r"""["']([\w./-]+\.html(?:#[\w:.-]+)?)["']""", file.read()):
                    # Search's begin with "../"; the tree's are relative to the page's folder.
                    found["search" if in_search else "tree"].append((path, os.path.join(where, target)))
    return found


def main():
    folder = os.path.normpath(sys.argv[1])
    pages = {}
    for where, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".html"):
                path = os.path.normpath(os.path.join(where, name))
                pages[path] = Page(path)
    wrong = [f"{path}:{line}: {text}" for path, page in pages.items() for line, text in page.wrong]
    count = 0

    def follow(source, target):
        file, _, anchor = target.partition("#")
        file = os.path.normpath(urllib.parse.unquote(file.partition("?")[0]))
        if not os.path.exists(file):
            wrong.append(f"{source}: there is no {file}")
        elif anchor and file in pages and urllib.parse.unquote(anchor) not in pages[file].ids:
            wrong.append(f"{source}: {file} has no #{anchor}")

    for path, page in pages.items():
        for line, target in page.links:
            if not local(target) or target.startswith("javascript:"):
                continue
            count += 1
            base = path if target.startswith("#") or not target else os.path.dirname(path) + "/"
            follow(f"{path}:{line}", base + target)
    scripts = links_of_scripts(folder)
    for path, target in scripts["tree"] + scripts["search"]:
        count += 1
        follow(path, target)
    print("\n".join(wrong))
    print(f"pages {len(pages)}, links {count}, search {len(scripts['search'])}, wrong {len(wrong)}")
    sys.exit(bool(wrong) or not scripts["search"] or not scripts["tree"] or len(pages) < 50)


main()
