# SPDX-License-Identifier: BSD-3-Clause
"""A copy of the tree, built once, and workplaces in which one file at a time is changed."""

import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

_FLAGS = ['CXXFLAGS=-O1 -g0', 'LIGHTER=-g0']


def run(command, **options):
    # Settings of a calling make must not affect the makes started here.
    theirs = ('MAKEFLAGS', 'MAKELEVEL', 'MFLAGS')
    environment = {k: v for k, v in os.environ.items() if k not in theirs}
    return subprocess.run(command, env=environment, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


class BuildFailed(Exception):
    pass


def _files(root):
    listed = run(['git', '-C', str(root), 'ls-files', '-co', '--exclude-standard'])
    top = run(['git', '-C', str(root), 'rev-parse', '--show-toplevel'])
    if listed.returncode == 0 and Path(top.stdout.strip()) == root:
        return [name for name in listed.stdout.splitlines() if (root / name).is_file()]
    return [str(path.relative_to(root)) for path in root.rglob('*')
            if path.is_file() and path.relative_to(root).parts[0] != 'build']


def copy(root, to):
    """Makes `to` like `root`, except for build/; unchanged files keep their times."""
    wanted = set(_files(root))
    for path in list(to.rglob('*')) if to.exists() else []:
        name = path.relative_to(to)
        if name.parts[0] != 'build' and path.is_file() and str(name) not in wanted:
            path.unlink()
    for name in wanted:
        source, target = root / name, to / name
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


class Original:
    """The unchanged tree: its objects, its test programs and how they are made."""

    def __init__(self, root, folder):
        self.path = folder / 'original'
        copy(root, self.path)
        built = run(['make', *_FLAGS, 'unit-tests', 'sim-tests'], cwd=self.path)
        if built.returncode != 0:
            raise BuildFailed(built.stdout)
        self._commands, self._linker = {}, []
        for linker in ('lld', 'gold'):
            if shutil.which(f'ld.{linker}'):
                self._linker = [f'-fuse-ld={linker}', '-Wl,--strip-debug']
                break
        self._users = self._read_dependencies()

    def program(self, name):
        return self.path / 'build/tests' / name

    def _read_dependencies(self):
        """For each header, the objects that include it."""
        users = {}
        for listed in (self.path / 'build/obj').rglob('*.d'):
            rule = listed.read_text().replace('\\\n', ' ').split('\n', 1)[0]
            target, _, needed = rule.partition(':')
            for name in needed.split()[1:]:
                users.setdefault(os.path.normpath(name), []).append(target)
        return users

    def objects_of(self, file):
        if file.endswith('.cc'):
            return [f'build/obj/{file[:-3]}.o']
        return self._users.get(file, [])

    def command(self, target, newer):
        """The command by which make makes `target`, if its source `newer` has changed."""
        if target not in self._commands:
            said = run(['make', '-n', 'V=1', *_FLAGS, '-W', newer, target], cwd=self.path).stdout
            lines = [line.split(';')[-1] for line in said.splitlines()
                     if f'-o {target} ' in line + ' ']
            if not lines:
                raise BuildFailed(f'make does not say how {target} is made:\n{said}')
            self._commands[target] = shlex.split(lines[-1])
        return list(self._commands[target])

    def link_command(self, name):
        return self.command(f'build/tests/{name}', 'build/libaeconn.a') + self._linker


class Workplace:
    """One worker's copy of the sources, and the programs made with a change."""

    def __init__(self, original, root, folder):
        self.original, self.path = original, folder
        copy(original.path, folder)
        self._made = []

    def compile(self, change):
        """True if it compiles, to a different program."""
        source = self.path / change.file
        text = (self.original.path / change.file).read_text()
        for name in ('unit-tests', 'sim-tests'):
            (self.path / 'build' / name).unlink(missing_ok=True)
        self._made = self.original.objects_of(change.file)
        differs = False
        try:
            source.write_text(change.apply(text))
            for target in self._made:
                compiled = target.replace('build/obj/', '', 1)[:-2] + '.cc'
                command = [word for word in self.original.command(target, compiled)
                           if word not in ('-MMD', '-MP') and not word.startswith(('-W', '-g'))]
                (self.path / target).parent.mkdir(parents=True, exist_ok=True)
                if run(command + ['-w', '-g0'], cwd=self.path, timeout=900).returncode != 0:
                    return False
                differs = differs or ((self.path / target).read_bytes() !=
                                      (self.original.path / target).read_bytes())
        finally:
            source.write_text(text)
        return differs

    def link(self, name):
        program = self.path / 'build' / name
        if program.exists():
            return program
        command, library = [], 'build/libaeconn.a'
        of_library = [t for t in self._made if t.startswith(('build/obj/ae/', 'build/obj/conn/'))]
        for word in self.original.link_command(name):
            if word == library:  # before the library, so that the archive's versions are not used
                command += [str(self.path / made) for made in of_library]
            command.append(str(self.path / word) if word in self._made else word)
        command[command.index('-o') + 1] = str(program)
        linked = run(command, cwd=self.original.path)
        if linked.returncode != 0:
            raise BuildFailed(linked.stdout)
        return program


def end(process):
    """Ends a test program and all that it started, which are in a session of their own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
