# SPDX-License-Identifier: BSD-3-Clause
"""Selects the changes to try: all changes, in an order given by a seed."""

import random
import re
from pathlib import PurePath

from .changes import changes
from .tree import run

_FOLDERS = ('ae', 'conn')


def sources(root, original, most_users):
    """The library's files: all *.cc, and headers that at most `most_users` objects include."""
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
    """Matches a pattern of file names, with or without `:line` or `:first-last` after it."""
    name, _, span = pattern.partition(':')
    first, _, last = span.partition('-')
    return PurePath(change.file).match(name) and \
        (not span or int(first) <= change.line <= int(last or first))


def survivors(log):
    """The survivors in a run's log; a change is identified by its file and its lines."""
    survivor = r'^\[\d+/\d+\] ([^:]+):.*: SURVIVED.*\n    - (.*)\n    \+ (.*)$'
    return set(re.findall(survivor, log, re.M))


def draw(found, seed, patterns, lines, same=None):
    """`found` in the seed's order, without changes that were not asked for."""
    wanted = [change for change in found
              if (not patterns or any(_fits(change, pattern) for pattern in patterns))
              and (lines is None or change.line in lines.get(change.file, ()))
              and (same is None or change.same() in same)]
    random.Random(seed).shuffle(wanted)
    return wanted
