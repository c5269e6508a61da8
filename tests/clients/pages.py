# SPDX-License-Identifier: BSD-3-Clause
"""pages.py PAGE...: checks that the names on pages of text exist in the tree (the current folder).

Prints PAGE:LINE: the problem, and last, for each kind of name, how many were checked and how many
of them are wrong: "KIND CHECKED WRONG". The kinds:

  links      [text](target): the file and, after '#', a heading of it
  paths      a file or folder in `code`, and file names without a folder, which may be in any
             folder; for files in build/, that the Makefile or a script mentions them
  lines      a file with a number after it: line numbers become wrong, a function's name does not
  functions  "`file.cc` name(), name()": they are in that file
  tests      names of test cases in quotes, those that docs/promises.md calls `conformance_io`, and
             those that a command line runs
  tags       `[tag]` of a test
  targets    `make target`, and the variables that are given to it
  options    the tables of docs/options.md, both ways and cell by cell against the tables of the
             parsers (aeconn-doctor --write-page options), and that tuning options, and no others,
             are below a heading "Tuning"; key=value and URLs in `code`
  flags      --flag of this project's programs and scripts
  counters   the last columns of docs/limits.md and docs/options.md
  variables  AECONN_...

Words in capitals match anything: `conn/NAME/type.h`, `build/fuzz/NAME FILE`, `--sizes LIST`.
"""

import fnmatch
import os
import re
import sys

from pages_tree import Page, Tree

# Names from other projects that pages may use.
ELSEWHERE = {
    "BUILD_RDMA",  # a variable of Valkey's Makefile
    "--save", "--appendonly", "--cflags", "--libs",  # redis-server's, pkg-config's
    "test_socket.py", "test_buffered_proto.py",  # CPython's
}
FOLDERS = ("ae", "conn", "bindings", "tests", "docs", "examples", "programs", "bench", "tools", "build", ".ci")
INCLUDED = ("adapters", "c")  # folders of bindings/, which programs include by these names
FILE_NAME = re.compile(r"[a-zA-Z\d*][\w*-]*\.(?:cc|h|sh|py|md|mk|txt)")
# Except for files with such names.
PLACEHOLDER = re.compile(
    r"\b(?!README|SECURITY|CHANGELOG|LICENSE)[A-Z][A-Z0-9_]*\b|\.\.\.|<[a-z]+>")


def beside(page, name):
    return os.path.normpath(os.path.join(os.path.dirname(page.path), name))


class Checker:
    KINDS = ("links", "paths", "lines", "functions", "tests", "tags", "targets", "options", "flags",
             "counters", "variables")

    def __init__(self, tree):
        self.tree = tree
        self.looked = dict.fromkeys(self.KINDS, 0)
        self.wrong = dict.fromkeys(self.KINDS, 0)

    def check(self, kind, page, line, good, complaint):
        self.looked[kind] += 1
        if not good:
            self.wrong[kind] += 1
            print(f"{page}:{line}: {complaint}")

    def page(self, path):
        page = Page(path)
        self.links(page)
        self.quoted_tests(page)
        self.functions_and_lines(page)
        self.tables(page)
        for number, line in enumerate(page.lines, 1):
            for name in re.findall(r"AECONN_[A-Z0-9_]*[A-Z0-9]\b", line):
                self.check("variables", path, number, re.search(rf"\b{name}\b", self.tree.all_text),
                           f"nothing in the tree knows the variable {name}")
        for span in page.spans:
            self.span(page, span)

    # ---- links ----------------------------------------------------------------------------------
    def links(self, page):
        for number, line in page.prose:
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                if target.startswith(("http:", "https:", "mailto:")):
                    continue
                file, _, anchor = target.partition("#")
                where = beside(page, file) if file else page.path
                good = os.path.exists(where)
                if good and anchor and where.endswith(".md"):
                    good = anchor in Page(where).headings
                self.check("links", page.path, number, good, f"the link leads nowhere: {target}")

    # ---- names of tests -------------------------------------------------------------------------
    def quoted_tests(self, page):
        for number, line in page.prose:
            for text in re.findall(r'"([^"|]+)"', line):
                if self.begins_as_a_test(text):
                    self.check("tests", page.path, number, text in self.tree.tests,
                               f'no test is called "{text}"')

    def begins_as_a_test(self, text):
        begin, colon, name = text.partition(": ")
        return name and begin in self.tree.test_subjects

    # ---- `file.cc` and what follows it ----------------------------------------------------------
    def functions_and_lines(self, page):
        text = "\n".join(line for _, line in page.prose)
        # The prose has fewer lines than the page: their numbers on the page.
        numbers = [number for number, _ in page.prose]
        file = None
        # Matches a file; a function; the end of a statement about a file; a line number after it.
        pattern = re.compile(r"`([\w./*-]+\.(?:cc|h))`|\b(\w+)\(\)"
                             r"|`[^`]*`|(?:[.;:]\s|\n\s*\n|\n *- )"
                             r"|(?<=` )(\d+(?:-\d+)?)\b(?! *[a-z%])")
        for match in pattern.finditer(text):
            number = numbers[text.count("\n", 0, match.start())]
            if match.group(1):
                file = match.group(1)
                self.looked["lines"] += 1
            elif match.group(2):
                if file and file in self.tree.sources:
                    self.check("functions", page.path, number,
                               re.search(rf"\b{match.group(2)}\(", self.tree.sources[file]),
                               f"{file} has no {match.group(2)}()")
            elif match.group(3):
                if file:
                    self.wrong["lines"] += 1
                    print(f"{page.path}:{number}: {file} {match.group(3)}: lines move; "
                          "name the function")
            else:
                file = None

    # ---- tables ---------------------------------------------------------------------------------
    def tables(self, page):
        header, section, tuning = None, "", ""
        documented = {}
        for number, line in page.prose:
            if line.startswith("#"):
                tuning = "tuning" if line.startswith("### Tuning") else ""
                section = section if tuning else line.lstrip("# ")
            if not line.startswith("|"):
                header = None
                continue
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if header is None:
                header = cells
                continue
            if set(line) <= set("|-: "):
                continue
            row = dict(zip(header, cells))
            for text in re.findall(r'"([^"]+)"', row.get("provoked by", "") + row.get("test", "")):
                if not self.begins_as_a_test(text):  # otherwise checked by quoted_tests()
                    self.check("tests", page.path, number, text in self.tree.tests,
                               f'no test is called "{text}"')
            for flag in re.findall(r"`(--[a-z-]+)`", row.get("flag", "")):
                self.flag(page, number, flag, "kv-server")
            for name in re.findall(r"`([\w/]+)`", row.get("proven by", "")):
                self.check("tests", page.path, number,
                           self.unit_test(name), f"there is no {name}_test.cc below tests/")
            for column in ("counter", "counted in"):
                for name in re.findall(r"`([a-z_]+)`", row.get(column, "")):
                    self.check("counters", page.path, number, f'"{name}"' in self.tree.all_text or
                               f"{name}:" in self.tree.text("examples"), f"nothing counts {name}")
            if "option" in row and header[0] == "what" or "bounded by" in row:
                names = row.get("option", "") + row.get("bounded by", "")
                for name in re.findall(r"`([a-z][a-z-]*)`", names):
                    self.known_option(page, number, name)
            if header[0] == "option" and section in self.tree.options:
                for name in re.findall(r"`([a-z-]+)`", cells[0]):
                    documented.setdefault(section, set()).add(name)
                    self.check("options", page.path, number, name in self.tree.options[section],
                               f"{section} has no option {name}")
                    self.option_row(page, number, section, name, cells[1:], tuning)
        # The page that describes one transport's options must describe those of all transports.
        for owner in self.tree.options if documented else ():
            for name in sorted(self.tree.options[owner]):
                self.check("options", page.path, 1, name in documented.get(owner, ()),
                           f"the option {name} of {owner} is not described")

    def option_row(self, page, number, section, name, cells, tuning):
        """Side, default, range and meaning must be those of the parser's table, and tuning options
        must be shown apart."""
        said = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell).replace("\\|", "|") for cell in cells]
        wanted = self.tree.options[section].get(name)
        if wanted:
            place = "below the heading Tuning" if wanted[4] else "above the heading Tuning"
            self.check("options", page.path, number, tuning == wanted[4],
                       f"{section}'s {name} is to be {place}")
        if wanted and len(said) == len(wanted[:4]):
            for column, have, want in zip(("side", "default", "range", "meaning"), said, wanted):
                self.check("options", page.path, number, have == want,
                           f'{column} of {section}\'s {name} is "{want}", not "{have}"')

    def known_option(self, page, number, name):
        self.check("options", page.path, number, name in self.tree.option_names, f"no transport has an option {name}")

    # ---- `code` ---------------------------------------------------------------------------------
    def span(self, page, span):
        text = span.text
        for url in re.findall(r"\b(?:tcp|unix|rdma|tls(?:\+\w+)?)://[^\s'\"]*\?([^\s'\"]+)", text):
            for pair in url.split("&"):
                if pair.split("=")[0] != "key":
                    self.known_option(page, span.line, pair.split("=")[0])
        pair = re.fullmatch(r"([a-z][a-z-]+)=([\w.:]*)", text)
        hello = page.path.endswith("conn-perf.md") and pair and \
            f'"{pair.group(1)}' in self.tree.text("programs/conn_perf")
        if pair and not hello and pair.group(1) != "key":
            self.known_option(page, span.line, pair.group(1))
        if re.fullmatch(r"(?:\[[^\]\s]+\]|~|,)+", text):
            self.tag_list(page, span.line, text)
            return
        words = re.findall(r"'[^']*'|\"[^\"]*\"|[^\s;&|]+|[;&|]+", text)
        self.commands(page, span, words)
        for word in words:
            self.path(page, span, word.strip("'\"(),:"))
        if re.fullmatch(r"--[a-z][\w-]*(?:[ =].*)?", text):
            self.flag(page, span.line, text, "")

    def tag_list(self, page, number, text):
        for tag in re.findall(r"\[([^\]]+)\]", text):
            self.check("tags", page.path, number, tag in self.tree.tags,
                       f"no test has the tag [{tag}]")

    def commands(self, page, span, words):
        program = None
        for i, word in enumerate(words):
            bare = word.strip("'\"")
            if re.fullmatch(r"[;&|]+", word) or word in ("--", "-c"):
                program = None
                if word == "-c" and i + 1 < len(words):  # sh -c 'another command'
                    inner = re.findall(r'"[^"]*"|[^\s;&|]+|[;&|]+', words[i + 1].strip("'\""))
                    self.commands(page, span, inner)
                    for part in inner:
                        self.path(page, span, part)
            elif program is None:
                # VARIABLE=value, and programs that run another one
                if not re.fullmatch(r"[A-Z_0-9]+=.*|setarch|timeout|exec|-R", word):
                    program = bare
            elif program == "make":
                self.make_word(page, span.line, word)
            elif program.endswith(("unit-tests", "sim-tests")):
                self.test_word(page, span.line, bare)
            elif word.startswith("-") and span.text.find(program) >= 0:
                self.flag(page, span.line, word, program)

    def make_word(self, page, number, word):
        variable = re.fullmatch(r"([A-Z_]+)=.*", word)
        if variable:
            name = variable.group(1)
            self.check("targets", page.path, number, name in ELSEWHERE or
                       re.search(rf"\b{name}\b", self.tree.makefile),
                       f"the Makefile knows no {name}=")
        elif re.fullmatch(r"[a-z][\w-]*", word):
            self.check("targets", page.path, number, word in self.tree.targets,
                       f"the Makefile has no target {word}")

    def test_word(self, page, number, word):
        if word.startswith("-") or PLACEHOLDER.fullmatch(word):
            return
        if "[" in word:
            self.tag_list(page, number, word)
        else:
            good = word == "its name" or any(fnmatch.fnmatchcase(t, word) for t in self.tree.tests)
            self.check("tests", page.path, number, good, f'no test is called "{word}"')

    def path(self, page, span, word):
        word = word.split("=")[-1]
        word = word[2:] if word.startswith("./") else word
        if not re.fullmatch(r"[\w.*/<>-]+", word) or word.startswith(("-", "/")):
            return
        pattern = PLACEHOLDER.sub("*", word)
        parts = pattern.rstrip("/").split("/")
        if len(parts) == 1:
            if span.command or word in ELSEWHERE or not re.fullmatch(FILE_NAME, word):
                return
            names = (os.path.basename(file) for file in self.tree.files)
            good = any(fnmatch.fnmatch(name, pattern) for name in names)
            self.check("paths", page.path, span.line, good, f"no file is called {word}")
        elif parts[0] == "build":
            last = [part for part in parts if "*" not in part][-1]
            known = self.tree.makefile + self.tree.scripts
            name = "[-_]".join(re.escape(part) for part in re.split("[-_]", last))
            good = re.search(rf"\b{name}\b", known)
            self.check("paths", page.path, span.line, good, f"nothing makes {word}")
        elif parts[0] in FOLDERS + INCLUDED or os.path.isdir(beside(page, parts[0])):
            names = [pattern.rstrip("/"), beside(page, pattern)]
            names += [f"bindings/{pattern}"] if parts[0] in INCLUDED else []
            good = any(self.exists(name) for name in names) or self.unit_test(pattern)
            self.check("paths", page.path, span.line, good, f"there is no {word}")

    def unit_test(self, name):
        """Whether a unit test of that name is in one of the folders below tests/."""
        return self.exists(f"tests/{name}_test.cc") or self.exists(f"tests/*/{name}_test.cc")

    def exists(self, pattern):
        if "*" not in pattern:
            return os.path.exists(pattern)
        return any(fnmatch.fnmatch(file, pattern) for file in self.tree.files)

    def flag(self, page, number, text, program):
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text):
            if flag in ELSEWHERE:
                continue
            if flag == "--help" and "argparse" in self.tree.sources.get(program, ""):
                continue  # Python's own module
            name = os.path.basename(program)
            if name == "conn-perf" or (not program and page.path.endswith("conn-perf.md")):
                where, whose = self.tree.text("programs/conn_perf"), "conn-perf"
            elif name == "aeconn-proxy":
                where, whose = self.tree.text("programs/proxy"), name
            elif name in ("kv-server", "kv-cli"):
                where, whose = self.tree.text("examples/kv_server"), name
            elif program in self.tree.sources:
                where, whose = self.tree.sources[program], program
            elif program:
                continue  # not one of this project's programs
            else:
                where, whose = self.tree.all_text, "nothing in the tree"
            self.check("flags", page.path, number, re.search(rf"(?<![\w-]){flag}(?![\w-])", where),
                       f"{whose} {'has no' if program else 'knows'} {flag}")


def main():
    checker = Checker(Tree())
    for path in sys.argv[1:]:
        checker.page(path)
    for kind in Checker.KINDS:
        print(kind, checker.looked[kind], checker.wrong[kind])


main()
