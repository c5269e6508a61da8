# SPDX-License-Identifier: BSD-3-Clause
"""Changes without an observable effect, which were reviewed, with the reasons."""

from .changes import squeeze


class BadFile(Exception):
    pass


def read(path):
    """{(file, line before, line after): reason}, from blocks as a run prints its survivors:

        conn/tcp/dial.cc
        - the line as it is
        + the line as it was changed
        = why the change has no observable effect, on one line or more
    """
    accepted, block, start = {}, {}, 0
    lines = path.read_text().splitlines() if path.exists() else []
    for number, line in enumerate(lines + [''], 1):
        sign, text = line[:1], squeeze(line[1:])
        if line.startswith('#'):
            continue
        if not line.strip():
            if block:
                missing = [key for key in ('file', '-', '+', '=') if not block.get(key)]
                if missing:
                    raise BadFile(f'{path.name}:{start}: a block without {" and ".join(missing)}')
                accepted[block['file'], block['-'], block['+']] = block['=']
            block = {}
        elif sign in '-+=' and block:
            block[sign] = squeeze(block.get(sign, '') + ' ' + text)
        else:
            start, block = number, {'file': line.split(':')[0].strip()}
    return accepted


def stale(accepted, candidates):
    """Entries whose line no longer exists, or cannot be changed in this way."""
    there = {change.same() for change in candidates}
    return [key for key in accepted if key not in there]
