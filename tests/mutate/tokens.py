# SPDX-License-Identifier: BSD-3-Clause
"""C++ as tokens: enough to find operators, conditions and statements, and to skip strings."""

import re
from dataclasses import dataclass

_PATTERN = re.compile(r'''
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<directive>^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
  | (?P<string>(?:u8|[uUL])?R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
  | (?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)
  | (?P<character>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<operator><=>|\.\.\.|->\*|<<=|>>=|::|->|\+\+|--|&&|\|\||[-+*/%&|^=<>!]=|<<|[^\s\w])
''', re.X | re.S | re.M)


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int

    @property
    def end(self):
        return self.start + len(self.text)


def tokenize(text):
    """All tokens except comments and directives; anything that is not C++ is skipped."""
    tokens = []
    for found in _PATTERN.finditer(text):
        kind = 'string' if found.group('string') else found.lastgroup
        if kind not in ('comment', 'directive'):
            tokens.append(Token(kind, found.group(), found.start()))
    return tokens


def partners(tokens):
    """For each bracket's index, the index of its partner."""
    other, opened = {}, []
    for i, token in enumerate(tokens):
        if token.kind != 'operator':
            continue
        if token.text in '([{':
            opened.append(i)
        elif token.text in ')]}' and opened:
            other[i] = opened.pop()
            other[other[i]] = i
    return other
