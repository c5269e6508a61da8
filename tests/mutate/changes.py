# SPDX-License-Identifier: BSD-3-Clause
"""The places of a file where a change makes a different program."""

from dataclasses import dataclass

from .tokens import partners, tokenize

# Only between two operands: clang-format puts blanks around these, but not around a reference, a
# pointer or a template's brackets.
_BINARY = {
    '<': '<=', '<=': '<', '>': '>=', '>=': '>', '==': '!=', '!=': '==',
    '&&': '||', '||': '&&',
    '+': '-', '-': '+', '*': '/', '/': '*', '%': '/', '&': '|', '|': '&',
    '+=': '-=', '-=': '+=', '|=': '&=', '&=': '|=',
}
_WORDS = {'true': 'false', 'false': 'true'}
# Statements beginning with these cannot be left out.
_KEYWORDS = {
    'return', 'if', 'else', 'for', 'while', 'do', 'switch', 'case', 'default', 'break', 'continue',
    'throw', 'new', 'delete', 'using', 'typedef', 'namespace', 'class', 'struct', 'enum', 'union',
    'template', 'static', 'const', 'constexpr', 'extern', 'friend', 'public', 'private',
    'protected', 'goto', 'try', 'catch', 'auto', 'inline', 'virtual', 'explicit', 'operator',
    'static_assert', 'assert', 'void', 'unsigned', 'co_return', 'co_await',
}
# Calls whose effect is only visible to a clock or a memory counter.
_WITHOUT_EFFECT = {'reserve', 'shrink_to_fit'}
_SKIPPED_CALLS = {'assert', 'static_assert', 'noexcept', 'alignas', 'decltype', 'sizeof',
                  'requires'}
_SKIPPED_STATEMENTS = {'constexpr', 'using', 'typedef', 'enum', 'friend'}


@dataclass(frozen=True, order=True)
class Change:
    file: str
    start: int
    end: int
    new: str
    line: int
    what: str
    before: str  # the lines it touches, as one
    after: str

    def apply(self, text):
        return text[:self.start] + self.new + text[self.end:]

    def same(self):
        """Identifies the change when lines have moved."""
        return self.file, self.before, self.after


def squeeze(text):
    return ' '.join(text.split())


class _Finder:
    def __init__(self, file, text):
        self.file, self.text = file, text
        self.tokens = tokenize(text)
        self.other = partners(self.tokens)
        self.skipped = self._skipped()
        self.found = []

    def at(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ''

    def _skipped(self):
        """Indices of tokens in asserts, constants and declarations of types, where no code runs."""
        skipped = set()
        for i, token in enumerate(self.tokens):
            if token.kind != 'word':
                continue
            if token.text in _SKIPPED_CALLS and self.at(i + 1) == '(':
                skipped.update(range(i, self.other.get(i + 1, i) + 1))
            elif token.text in _SKIPPED_STATEMENTS:
                skipped.update(range(i, self._end_of_declaration(i) + 1))
            elif token.text == 'operator':
                skipped.update((i, i + 1))
            elif token.text == 'template' and self.at(i + 1) == '<':
                j, depth = i + 2, 1
                while j < len(self.tokens) and depth > 0:
                    depth += {'<': 1, '>': -1}.get(self.at(j), 0)
                    j += 1
                skipped.update(range(i, j))
        return skipped

    def _end_of_declaration(self, i):
        while i < len(self.tokens):
            text = self.at(i)
            if text == ';':
                return i
            if text == '{' and self.at(i - 1) in (')', 'const', 'noexcept'):
                return self.other.get(i, i)  # a function
            i = self.other.get(i, i) if text in ('(', '[', '{') else i
            i += 1
        return len(self.tokens) - 1

    def add(self, start, end, new, what, shown=None):
        """`shown` is printed instead of the new text where that is hard to read."""
        # Keep the number of lines.
        new += '\n' * (self.text.count('\n', start, end) - new.count('\n'))
        first = self.text.rfind('\n', 0, start) + 1
        last = self.text.find('\n', end)
        last = len(self.text) if last < 0 else last
        before = squeeze(self.text[first:last])
        after = squeeze(self.text[first:start] + (shown or new) + self.text[end:last])
        if before != after:
            line = self.text.count('\n', 0, start) + 1
            self.found.append(Change(self.file, start, end, new, line, what, before, after))

    def find(self):
        for i, token in enumerate(self.tokens):
            if i in self.skipped:
                continue
            if token.kind == 'operator':
                self._operator(i, token)
            elif token.kind == 'number':
                self._number(i, token)
            elif token.kind == 'word':
                self._word(i, token)
            if self._begins_statement(i):
                self._statement(i)
        return sorted(set(self.found))

    def _operator(self, i, token):
        old = token.text
        blank_before = self.text[token.start - 1:token.start].isspace()
        blank_after = self.text[token.end:token.end + 1].isspace()
        if old in _BINARY and blank_before and blank_after:
            self.add(token.start, token.end, _BINARY[old], f'{old} becomes {_BINARY[old]}')
        elif old == '!':
            self.add(token.start, token.end, '', 'without !')
        elif old in ('++', '--'):
            new = '--' if old == '++' else '++'
            self.add(token.start, token.end, new, f'{old} becomes {new}')
        elif old == '?':
            first = i
            while self.at(first - 1) not in (',', ';', '=', '?', ':', '{', '}', '(', '[', 'return',
                                             '<<', '+=', '-=', '|=', ''):
                first = self.other.get(first - 1, first - 1)
            if first < i:
                self._turn(first, i - 1)

    def _number(self, i, token):
        digits = token.text.replace("'", '').rstrip('uUlLzZ')
        if not digits.isdigit() or (len(digits) > 1 and digits[0] == '0'):
            return  # floating-point and hexadecimal numbers: constants and bits, not bounds
        if self.at(i - 1) == '[' and self.tokens[i - 2].kind == self.tokens[i - 3].kind == 'word':
            return  # size of an array
        value, suffix = int(digits), token.text.replace("'", '')[len(digits):]
        before = self.at(i - 1)
        for new in (value + 1, value - 1):
            # A result compared with 0 or < 0: != and == are changed anyway.
            if new == 1 and before in ('==', '!='):
                continue
            if new > value and before == '-' and self.tokens[i - 1].end == token.start:
                continue
            if new >= 0:
                self.add(token.start, token.end, f'{new}{suffix}', f'{token.text} becomes {new}')

    def _word(self, i, token):
        if token.text in _WORDS:
            self.add(token.start, token.end, _WORDS[token.text],
                     f'{token.text} becomes {_WORDS[token.text]}')
        elif token.text in ('if', 'while') and self.at(i + 1) == '(':
            close = self.other.get(i + 1)
            if close is None:
                return
            first = i + 2
            for j in range(i + 2, close):
                if self.at(j) == ';':
                    first = j + 1
            if self.at(first) not in ('const', 'auto'):
                self._turn(first, close - 1)
        elif token.text == 'return':
            self._return(i)

    def _turn(self, first, last):
        start, end = self.tokens[first].start, self.tokens[last].end
        inner = [self.at(j) for j in self._top_level(first, last)]
        if inner and inner[0] == '!' and '&&' not in inner and '||' not in inner:
            return  # covered by the change "without !"
        if inner in (['true'], ['false']):
            return
        old = self.text[start:end]
        self.add(start, end, f'!({old})', 'condition turned')

    def _top_level(self, first, last):
        j = first
        while j <= last:
            yield j
            j = self.other.get(j, j) if self.at(j) in ('(', '[', '{') else j
            j += 1

    def _return(self, i):
        end = i + 1
        while end < len(self.tokens) and self.at(end) != ';':
            end = self.other.get(end, end) if self.at(end) in ('(', '[', '{') else end
            end += 1
        if end == i + 1 or end >= len(self.tokens):
            return
        words = [self.at(j) for j in self._top_level(i + 1, end - 1)]
        if words[0] in ('true', 'false', '{', '*', '[') or '?' in words or \
           (len(words) <= 2 and self.tokens[end - 1].kind == 'number'):
            return
        if {'==', '!=', '<=', '>=', '&&', '||'} & set(words) or words[0] == '!':
            self._turn(i + 1, end - 1)
        elif words[-1] not in ('nullptr', 'nullopt'):
            start, stop = self.tokens[i + 1].start, self.tokens[end - 1].end
            old = self.text[start:stop]
            self.add(start, stop, f'std::remove_cvref_t<decltype({old})>()', 'returns {}', '{}')

    def _begins_statement(self, i):
        before = self.at(i - 1)
        if before in (';', '{', '}', 'else'):
            return True
        if before == ':':
            return self.at(i - 2) == 'default' or self.at(i - 3) == 'case'
        return before == ')' and self.at(self.other.get(i - 1, 0) - 1) in ('if', 'for', 'while')

    def _statement(self, i):
        """A call, or an assignment to an existing variable."""
        if self.tokens[i].kind != 'word' or self.tokens[i].text in _KEYWORDS:
            return
        j, last_name = i, ''
        while j < len(self.tokens):
            token = self.tokens[j]
            if token.kind == 'word':
                if self.tokens[j - 1].kind == 'word' and j > i:
                    return  # a declaration
                last_name = token.text
            elif token.text in ('::', '.', '->'):
                pass
            elif token.text in ('(', '['):
                j = self.other.get(j, len(self.tokens))
            elif token.text == '=':
                what = 'assignment left out'
                break
            elif token.text == ';':
                if self.at(j - 1) != ')' or last_name in _WITHOUT_EFFECT:
                    return
                what = 'call left out'
                break
            else:
                return
            j += 1
        else:
            return
        while j < len(self.tokens) and self.at(j) != ';':
            if self.at(j) in ('(', '[', '{'):
                j = self.other.get(j, len(self.tokens))
            elif self.at(j) in (')', '}', ']'):
                return  # not a statement: a default argument, an initializer
            j += 1
        if j < len(self.tokens) and not any(k in self.skipped for k in (i, j)):
            self.add(self.tokens[i].start, self.tokens[j].end, ';', what)


def changes(file, text):
    """All changes of a file, each a mutant, in order."""
    return _Finder(file, text).find()
