# SPDX-License-Identifier: BSD-3-Clause
"""filter.py FILE: preprocesses a page or a header for Doxygen.

Pages: headings get the anchors that links refer to, links between pages and to headings become
references, and links to targets outside the site become text. Headers: the comment at the top
becomes the file's documentation, headers for authors of transports join the group of
tools/site/authors.dox, and protected members are left out, except in those headers and in conn/
itself, where authors of transports need them.
"""

import os
import re
import sys

AUTHORS = ("conn/kit", "conn/spi", "conn/core", "conn/url")
COPIED = ("LICENSE", "docs/echo_server.cc", "docs/echo_server_co.cc")


def slug(heading):
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return words.replace(" ", "-")


def label(path, heading=""):
    """The anchor of a page or of a heading in it; unique within the site."""
    name = re.sub(r"\.md$", "", path).replace("/", "_").lower()
    return f"page_{name}" + (f"__{slug(heading)}" if heading else "")


def headings_of(path):
    with open(path, encoding="utf-8") as file:
        outside = re.sub(r"^```.*?^```", "", file.read(), flags=re.M | re.S)
    return {slug(line.lstrip("# ")) for line in re.findall(r"^#+ .*$", outside, re.M)}


class Page:
    def __init__(self, path):
        self.path, self.seen = path, {}

    def target(self, match):
        text, target = match.group(1), match.group(2)
        if re.match(r"[a-z]+:", target):
            return match.group(0)
        file, _, anchor = target.partition("#")
        where = os.path.normpath(os.path.join(os.path.dirname(self.path), file)) if file else self.path
        if where in COPIED:
            return f'<a href="{os.path.basename(where)}">{text}</a>'
        if where in AUTHORS:
            return f"[{text}](@ref authors)"
        if not where.endswith(".md") or not os.path.exists(where) or where not in pages():
            return text
        if anchor:
            if anchor not in headings_of(where):
                sys.exit(f"{self.path}: {where} has no heading {anchor}")
            return f"[{text}](@ref {label(where)}__{anchor})"
        return f"[{text}](@ref {label(where)})"

    def prose(self, line):
        heading = re.match(r"(#+) +(.*)", line)
        if heading:
            level, text = heading.groups()
            if level == "#" and not self.seen:
                self.seen[""] = 1
                return f"# {text} {{#{label(self.path)}}}"
            name = label(self.path, text)
            again = self.seen.setdefault(name, 0)  # repeated headings get the suffixes -1, -2
            self.seen[name] += 1
            return f"{level} {text} {{#{name}{f'-{again}' if again else ''}}}"
        return line

    def run(self, text):
        """Code blocks are not changed."""
        parts = re.split(r"(^ *```.*?^ *```\n?)", text, flags=re.M | re.S)
        for part in parts:
            if part.lstrip().startswith("```"):
                # Doxygen does not know these language names.
                sys.stdout.write(re.sub(r"^( *)```(sh|diff|text|c\+\+)$", lambda m: m.group(1) + "```" +
                                        {"c++": "cpp"}.get(m.group(2), ""), part, flags=re.M))
                continue
            part = re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", self.target, part)
            sys.stdout.write("\n".join(self.prose(line) for line in part.split("\n")))


def pages():
    return os.environ.get("SITE_PAGES", "").split()


def c_header(text):
    """Converts C comments for Doxygen, which requires a second star, or "**<" after a declaration.
    A comment applies to all declarations on the lines that directly follow it."""
    text = re.sub(r"\A/\* ", "/** @file\n * ", text)
    text = re.sub(r"^/\* ---.*\*/\n", "", text, flags=re.M)
    text = re.sub(r"([;,{\w]) +/\* ", r"\1 /**< ", text)
    text = re.sub(r"^( *)/\* ", r"\1/** ", text, flags=re.M)
    out, comment, used, inside = [], [], False, None  # inside: a comment or a declaration
    depth = 0
    for line in text.split("\n"):
        if inside is None and line.startswith("/**"):
            comment, used, inside = [], False, "comment"
        if inside == "comment":
            comment.append(line)
            inside = None if line.endswith("*/") else inside
        elif not line or line.startswith(("#", 'extern "C"')):
            comment = comment if inside else []
        elif inside is None and line != "}":
            if used:
                out += comment
            used, inside = True, "declaration"
        out.append(line)
        if inside == "declaration":
            code = re.sub(r"/\*.*", "", line)
            depth += code.count("{") - code.count("}")
            if depth == 0 and code.rstrip().endswith(";"):
                inside = None
    return "\n".join(out)


def header(text, path):
    """Converts the file's first comment into a Doxygen file comment."""
    kit = os.path.dirname(path) in AUTHORS
    match = re.match(r"((?:#pragma once|/\*(?:[^*]|\*(?!/))*\*/|#(?:ifndef|define) [^\n]*|\s)*)"
                     r"((?://[^\n]*\n)+)", text)
    if match and not text[match.start(2):].startswith("///"):
        lines = [re.sub(r"^// ?", "", line) for line in match.group(2).splitlines()]
        lines = ["    " + line if line.startswith("  ") else line for line in lines]
        comment = "/// @file\n" + ("/// @ingroup authors\n" if kit else "")
        comment += "".join(f"/// {line}".rstrip() + "\n" for line in lines)
        text = match.group(1) + comment + "\n" + text[match.end():]
    # Linker attributes are not part of a name.
    text = re.sub(r"(?<!#define )\bAECONN_API +", "", text)
    if " inline namespace AECONN_ABI {" in text:
        text = text.replace(" inline namespace AECONN_ABI {", "")
        text = re.sub(r"^\}(\}+  // namespace )", r"\1", text, flags=re.M)
    text = re.sub(r"^template <>\nstruct std::.*\n", "", text, flags=re.M)  # not one of our names
    if kit:
        text = re.sub(r"^(namespace .*\{)$", "\\1\n/// @addtogroup authors\n/// @{", text, 1, flags=re.M)
        text = re.sub(r"^(\}+  // namespace .*)$", "/// @}\n\\1", text, flags=re.M)
    if kit or os.path.dirname(path) == "conn":
        return text
    return re.sub(r"^( *)protected:", r"\1private:", text, flags=re.M)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    path = os.path.relpath(sys.argv[1])
    # The file's comment follows the licence line.
    text = re.sub(r"\A(//|/\*) SPDX-License-Identifier:.*\n", "", text)
    if path.endswith(".md"):
        Page(path).run(text)
    else:
        sys.stdout.write(c_header(text) if path.startswith("bindings/c/") else header(text, path))


main()
