# SPDX-License-Identifier: BSD-3-Clause
"""Which changes are tried: all there are, in an order that a seed gives."""

import random
import re
from pathlib import PurePath

from .changes import changes
from .tree import run

_FOLDERS = ('ae', 'conn')


def sources(root, original, most_users):
    """The library's files: all *.cc, and headers that `most_users` objects include at most."""
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob('*')):
            name = str(path.relative_to(root))
            if path.suffix == '.cc' or \
               (path.suffix == '.h' and 0 < len(original.objects_of(name)) <= most_users):
                yield name


def changed_lines(root, base):
    """{file: lines} that differ from the commit `base`; new files have all their lines."""
    said = run(['git', '-C', str(root), 'diff', '-U0', '--relative', base, '--', *_FOLDERS])
    if said.returncode != 0:
        raise SystemExit(f'BASE={base}: {said.stdout.strip()}')
    lines, file = {}, ''
    for line in said.stdout.splitlines():
        if line.startswith('+++ '):
            file = line[6:]
        found = re.match(r'@@ \S+ \+(\d+)(?:,(\d+))? @@', line)
        if found:
            first, count = int(found[1]), int(found[2] or 1)
            lines.setdefault(file, set()).update(range(first, first + count))
    return lines


def candidates(root, files):
    return [change for name in files for change in changes(name, (root / name).read_text())]


def _fits(change, pattern):
    """A pattern of file names, with `:line` or `:first-last` behind it or without."""
    name, _, span = pattern.partition(':')
    first, _, last = span.partition('-')
    return PurePath(change.file).match(name) and \
        (not span or int(first) <= change.line <= int(last or first))


def survivors(log):
    """What survived by a run's log, a change being known by its file and its lines."""
    survivor = r'^\[\d+/\d+\] ([^:]+):.*: SURVIVED.*\n    - (.*)\n    \+ (.*)$'
    return set(re.findall(survivor, log, re.M))


def draw(found, seed, patterns, lines, same=None):
    """`found` in the order of the seed, less what was not asked for."""
    wanted = [change for change in found
              if (not patterns or any(_fits(change, pattern) for pattern in patterns))
              and (lines is None or change.line in lines.get(change.file, ()))
              and (same is None or change.same() in same)]
    random.Random(seed).shuffle(wanted)
    return wanted
