# SPDX-License-Identifier: BSD-3-Clause
"""Compares the pages' claims with the tests that prove them (tests/claims; its head describes how).

CLAIMS PAGE...: prints a line for each problem, then the number of claims.
"""

import os
import re
import sys

from pages_tree import Page, Tree

CLAIM = re.compile(r"\b(?:never|at most|promises?)\b", re.I)
PROMISES = "docs/promises.md"


def plain(text):
    return " ".join(re.sub(r"\*\*|\\(?=\|)", "", text).split())


def read(path):
    """{page: {words: (line, [proofs])}}"""
    claims, page, words = {}, None, None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            depth = len(line) - len(line.lstrip())
            if not text or line.startswith("#"):
                continue
            if depth == 0:
                page = claims.setdefault(text, {})
            elif depth == 2:
                words = page.setdefault(plain(text), (number, []))
            else:
                words[1].append(text)
    return claims


class Checker:
    def __init__(self, claims_path, tree):
        self.path, self.tree, self.wrong, self.count = claims_path, tree, 0, 0
        self.claims = read(claims_path)

    def complain(self, where, line, text):
        self.wrong += 1
        print(f"{where}:{line}: {text}")

    def proofs(self):
        for claims in self.claims.values():
            for words, (line, proofs) in claims.items():
                self.count += 1
                if not proofs:
                    self.complain(self.path, line, f"nothing proves: {words}")
                for proof in proofs:
                    good = proof.startswith("words:") or proof in self.tree.tests or (
                        proof.startswith("tests/") and os.path.exists(proof))
                    if not good:
                        self.complain(self.path, line, f"there is no test: {proof}")

    def page(self, path):
        claims = self.claims.get(path, {})
        # The prose as one text, with the position where each line begins.
        text, starts = "", []
        for number, line in Page(path).prose:
            starts.append((len(text), number))
            text += re.sub(r'"[^"|]*: [^"|]*"', "", plain(line)) + " "  # without names of tests
        covered = []
        for words, (line, _) in claims.items():
            found = [match.span() for match in re.finditer(re.escape(words), text)]
            if not found:
                self.complain(self.path, line, f"{path} does not say: {words}")
            covered += found
        for match in CLAIM.finditer(text):
            if path != PROMISES and not any(a <= match.start() < b for a, b in covered):
                number = [n for start, n in starts if start <= match.start()][-1]
                self.complain(path, number, f"no test is named in {self.path} for "
                              f"\"{text[max(0, match.start() - 30):match.end() + 40]}\"")

    def promises(self):
        """Each row must have tests, from the files that the row names."""
        claims = self.claims.get(PROMISES, {})
        for number, line in Page(PROMISES).prose:
            if not line.startswith("|") or set(line) <= set("|-: "):
                continue
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            when, by = plain(cells[0]), cells[-1]
            if when == "when":
                continue
            if when not in claims:
                self.complain(PROMISES, number, f"no test is named in {self.path} for: {when}")
                continue
            files = re.findall(r"`([\w/.]+)`", by)
            for proof in claims[when][1]:
                if proof in self.tree.tests and not any(
                        f'"{proof}"' in self.joined(file) for file in files):
                    self.complain(PROMISES, number, f"{by} has no test \"{proof}\"")

    def joined(self, name):
        return "".join(re.sub(r'"\s*\n\s*"', "", text) for path, text in self.tree.sources.items()
                       if path.startswith("tests/") and path.endswith(f"{name}_test.cc"))


def main():
    checker = Checker(sys.argv[1], Tree())
    checker.proofs()
    for path in sys.argv[2:]:
        checker.page(path)
    if PROMISES in sys.argv[2:]:
        checker.promises()
    print("claims", checker.count, checker.wrong)


main()
