# SPDX-License-Identifier: BSD-3-Clause
"""For pages.py: the contents of the tree, and the parts of a page."""

import os
import re
import subprocess
from collections import namedtuple

# command: a line of a code block that a shell would run, as opposed to `code` in a sentence
Span = namedtuple("Span", "line text command")


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Tree:
    """The existing files, and what they define."""

    def __init__(self):
        self.files = []
        for folder, folders, names in os.walk("."):
            folders[:] = [f for f in folders if f not in (".git", "build", "__pycache__", "corpus")]
            self.files += [os.path.normpath(os.path.join(folder, name)) for name in names]
        self.sources = {}  # everything except pages and the test of this program
        for path in self.files:
            is_page = path.endswith((".md", "clients/pages.sh"))
            if not is_page and os.path.getsize(path) < 1 << 20:
                self.sources[path] = read(path)
        self.makefile = self.text("Makefile") + self.text("tests/simulation/rules.mk") + self.text("tests/models/rules.mk")
        self.targets = set()
        for names in re.findall(r"^([\w $(/).%-]+?):(?!=)", self.makefile, re.M):
            self.targets.update(names.split())
        for names in re.findall(r"^\.PHONY: *(.*)$", self.makefile, re.M):
            self.targets.update(names.split())
        self.tests, self.tags = self.find_tests()
        self.test_subjects = {name.split(": ")[0] for name in self.tests if ": " in name}
        self.options = self.find_options()
        self.option_names = self.find_option_names()
        self.scripts = "\n".join(t for p, t in self.sources.items()
                                 if not p.endswith((".cc", ".h", ".txt")))
        self.all_text = "\n".join(self.sources.values())

    def text(self, *paths):
        return "\n".join(t for p, t in self.sources.items() if p.startswith(paths))

    def find_tests(self):
        names, tags = set(), {".", "!mayfail", "!benchmark"}
        for path, text in self.sources.items():
            if not (path.startswith("tests/") and path.endswith(".cc")):
                continue
            text = re.sub(r'"\s*\n\s*"', "", text)
            case = r'TEST_CASE\(\s*"((?:[^"\\]|\\.)*)"(?:,\s*"([^"]*)")?'
            for name, marks in re.findall(case, text):
                names.add(name)
                for tag in re.findall(r"\[([^\]]+)\]", marks):
                    tags.update({tag, tag.lstrip(".")})
        return names, tags

    def find_options(self):
        """The options of each transport in the build, from its table: {section of docs/options.md:
        {name: (side, default, range, meaning, "tuning" or "")}}."""
        program = os.path.join(os.environ.get("AECONN_BUILD", "build"), "aeconn-doctor")
        lines = subprocess.run([program, "--write-page", "options"], check=True, text=True,
                               stdout=subprocess.PIPE).stdout.splitlines()
        options = {}
        for line in lines:
            owner, name, *rest = line.split("\t")
            options.setdefault(owner, {})[name] = tuple(rest[:5])
        return options

    def find_option_names(self):
        """Of all transports, including those that this build lacks."""
        text = "\n".join(t for p, t in self.sources.items() if p.startswith("conn/"))
        names = re.findall(r'(?:Row::\w+|\bbuffer)\(\s*"([a-z-]+)"', text)
        return set(names).union(*self.options.values())


class Page:
    """The parts of a page that contain names."""

    def __init__(self, path):
        self.path = path
        self.lines = read(path).split("\n")
        self.spans, self.prose = [], []  # prose: (line, text) outside of blocks
        self.headings = set()
        block, paragraph = None, []
        for number, line in enumerate(self.lines + [""], 1):
            fence = re.match(r"```(\w*)", line)
            if fence:
                block = None if block is not None else fence.group(1)
                continue
            if block is None:
                if not line or line[0] in "|#" or line.startswith("- "):
                    self.spans_of(paragraph)
                    paragraph = []
                paragraph.append((number, line))
                self.prose.append((number, line))
                if line.startswith("#"):
                    words = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
                    self.headings.add(words.replace(" ", "-"))
            elif block == "sh":
                text = re.sub(r"(^|\s)#\s.*", "", line).strip()
                if text:
                    self.spans.append(Span(number, text, True))
        self.spans_of(paragraph)

    def spans_of(self, paragraph):
        """A span may extend beyond the end of a line."""
        text = "\n".join(line for _, line in paragraph)
        for match in re.finditer(r"`([^`]+)`", text):
            number = paragraph[text.count("\n", 0, match.start())][0]
            self.spans.append(Span(number, " ".join(match.group(1).split()), False))
