# SPDX-License-Identifier: BSD-3-Clause
"""Which tests run which line: a build that records this, and the recorded data."""

import concurrent.futures
import json
import os
import re
import subprocess
from pathlib import Path

from . import parts
from .runs import Next, Run, together
from .tree import BuildFailed, run

# Inlined functions would have no blocks. addr2line mistakes DWARF 5's first header for the source.
_FLAGS = ['-fsanitize-coverage=trace-pc', '-O0', '-gdwarf-4', '-w']
_WRITER = Path(__file__).with_name('visits.cc')
_SOURCE = re.compile(r'(?<![^/])(?:ae|conn)/(?!.*/(?:ae|conn)/).*')
_ABOVE, _BELOW = 20, 3  # lines: a block has one line in the table, and extends further


class Visits:
    def __init__(self, original, folder, simulation, of, tell):
        """Made once for the programs that `of` identifies, and kept in a file."""
        self._original, self._folder, self._tell = original, folder / 'visits', tell
        self._parts, of = parts.everything(simulation), [*of, simulation]
        self._folder.mkdir(exist_ok=True)
        kept = self._folder / 'visits.json'
        self._known = json.loads(kept.read_text()) if kept.exists() else {}
        if self._known.get('of') != of:
            self._known = {'of': of, 'tests': [], 'lines': {}}
            self._build()
            self._run()
            kept.write_text(json.dumps(self._known))

    def of_line(self, file, line):
        """[(program, test, seconds)] of tests that run that line or one near it, those that run few
        lines first. For a line that no test runs, the tests that run any line of its file."""
        lines = self._known['lines'].get(file, {})
        groups = self._near(lines, line)
        if not any(groups):
            groups = [{index for indices in lines.values() for index in indices}]
        tests = self._known['tests']

        def effort(index):
            _, _, seconds, size = tests[index]
            return size * (seconds + 0.05)

        chosen = {index: None for group in groups for index in sorted(group, key=effort)}
        return [tuple(tests[index][:3]) for index in chosen]

    def seen(self, file, line):
        """Whether a test runs that line or one near it."""
        return any(self._near(self._known['lines'].get(file, {}), line))

    @staticmethod
    def _near(lines, line):
        """The tests of the line, of the next line above or below with fewer tests, and of the
        other one."""
        near = [next((set(lines[str(n)]) for n in others if str(n) in lines), set())
                for others in (range(line - 1, line - _ABOVE, -1), range(line + 1, line + _BELOW))]
        return [set(lines.get(str(line), ())), *sorted(near, key=len)]

    def _program(self, name):
        return self._folder / name

    def _build(self):
        targets = [str(path.relative_to(self._original.path)) for folder in ('ae', 'conn')
                   for path in sorted((self._original.path / 'build/obj' / folder).rglob('*.o'))]

        def compiled(target):
            source = target.replace('build/obj/', '', 1)[:-2] + '.cc'
            made = self._folder / target
            made.parent.mkdir(parents=True, exist_ok=True)
            command = self._original.command(target, source)
            command[command.index('-o') + 1] = str(made)
            self._must([word for word in command if word not in ('-MMD', '-MP')] + _FLAGS)
            return str(made)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, targets))
        writer = self._folder / 'visits.o'
        compiler = self._original.command(targets[0], targets[0][len('build/obj/'):-2] + '.cc')[0]
        self._must([compiler, '-std=c++20', '-O1', '-fPIC', '-c', str(_WRITER), '-o', str(writer)])
        for name in sorted({part[0] for part in self._parts}):
            command = [word for word in self._original.link_command(name)
                       if word not in ('build/libaeconn.a', '-Wl,--strip-debug')]
            output = command.index('-o') + 1
            command[output] = str(self._program(name))
            # The library's objects first: their copies of inline functions are the ones that
            # record.
            command[output + 1:output + 1] = [*objects, str(writer)]
            self._must(command)

    def _must(self, command):
        made = run(command, cwd=self._original.path)
        if made.returncode != 0:
            raise BuildFailed(made.stdout)

    def _run(self):
        """Runs all tests, and records the blocks that each of them runs."""
        files = {}

        def start(part):
            files[part] = self._folder / f'{len(files)}.said'
            files[part].unlink(missing_ok=True)
            return Run(self._program(part[0]), part, part[1], self._folder / 'logs',
                       self._original.path, (2400, 2400), first_failure=False, visits=files[part])

        def finished(done, verdict):
            failed = done.failed()
            if verdict.noticed and not failed:
                raise SystemExit(f'without any change: {verdict.by}')
            for name in failed:
                self._tell(f'left out, since it fails without any change: {name}')
            self._read(done.part[0], files[done.part], set(failed))
            return Next.GO_ON

        together(self._parts, start, finished)

    def _read(self, program, said, failed):
        if not said.exists():
            return
        tests = {}
        for line in said.read_text().splitlines():
            name, seconds, blocks = line.split('\t')
            if name not in failed:
                tests[name] = float(seconds), [int(block, 16) for block in blocks.split()]
        places = self._places(program, sorted({b for _, blocks in tests.values() for b in blocks}))
        for name, (seconds, blocks) in tests.items():
            index = len(self._known['tests'])
            ran = {place for block in blocks for place in places[block]}
            self._known['tests'].append([program, name, seconds, len(ran)])
            for file, number in ran:
                lines = self._known['lines'].setdefault(file, {})
                lines.setdefault(str(number), []).append(index)

    def _places(self, program, blocks):
        """For each block the lines where it begins, including those of inlined functions."""
        path = str(self._program(program))
        symbols = run(['nm', path]).stdout.splitlines()
        base = next((int(s.split()[0], 16) for s in symbols if s.endswith('__executable_start')), 0)
        asked = ''.join(f'{base + block - 1:x}\n' for block in blocks)
        said = subprocess.run(['addr2line', '-a', '-i', '-e', path], input=asked, text=True,
                              stdout=subprocess.PIPE, check=True).stdout
        places, current = {}, None
        for line in said.splitlines():
            if line.startswith('0x'):
                current = places.setdefault(int(line, 16) + 1 - base, set())
                continue
            file, _, number = line.split(' ')[0].rpartition(':')
            # A compiler cache may have provided an object from another copy of the tree.
            found = _SOURCE.search(os.path.normpath(file))
            if number.isdigit() and found:
                current.add((found[0], int(number)))
        return places
