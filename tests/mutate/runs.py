# SPDX-License-Identifier: BSD-3-Clause
"""Running test programs, and their results."""

import enum
import os
import resource
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass

from . import parts
from .tree import end

_ROUND = ['setarch', '-R'] if shutil.which('setarch') else []  # the same addresses in each run


_running = set()
_stopped = threading.Event()


def prepare():
    """A broken program may crash or write endlessly: no core dump, no file above 1 GiB."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


def stop_all():
    """Stops all runs, and prevents new ones."""
    _stopped.set()
    for each in list(_running):
        end(each)


def for_catch(name):
    """The specification with which Catch2 selects only this test."""
    return ''.join('\\' + c if c in '\\,[]' else c for c in name)


@dataclass
class Verdict:
    noticed: bool
    by: str = ''
    hangs: bool = False


class Run:
    """A running part of the tests on one program."""

    def __init__(self, program, part, spec, folder, cwd, bounds, first_failure=True, visits=''):
        """The tests of `part` that `spec` selects; `bounds` in seconds, for all of them and for
        one test. The program writes the blocks that each test runs to `visits`, if it can."""
        name = part[0]
        self.part, self.begun, self.longest = part, time.monotonic(), 0.0
        self._whole, self._silence = bounds
        self._size, self._grew = 0, self.begun
        folder.mkdir(parents=True, exist_ok=True)
        stem = f'{name}.{abs(hash((spec, self.begun))):x}'
        self.tally, self.log = folder / f'{stem}.tally', folder / f'{stem}.log'
        self.tally.write_text('')
        environment = dict(os.environ, AECONN_TEST_TALLY=str(self.tally), AECONN_PROFILE='rxe',
                           AECONN_TEST_VISITS=str(visits))
        launcher = _ROUND if name == parts.SIMULATION else []
        with self.log.open('w') as log:
            self.process = subprocess.Popen(
                [*launcher, str(program), spec, '-d', 'yes', *(['--abort'] * first_failure)],
                cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)
        _running.add(self.process)
        if _stopped.is_set():
            self.stop()
            raise SystemExit

    def verdict(self):
        """None while it is running."""
        status = self.process.poll()
        if status is None:
            if not self._hangs():
                return None
            self.stop()
            return Verdict(True, f'hangs in {self.part[0]} {self.part[1]}', hangs=True)
        self.stop()  # ends leftover processes
        failed = self.failed()
        if failed:
            return Verdict(True, failed[0])
        return Verdict(status != 0, f'status {status} of {self.part[0]} {self.part[1]}')

    def _hangs(self):
        """Each finished test is a line in the log."""
        now, size = time.monotonic(), self.log.stat().st_size
        if size != self._size:
            self._size, self._grew = size, now
        self.longest = max(self.longest, now - self._grew)
        return now - self.begun > self._whole or now - self._grew > self._silence

    def failed(self):
        lines = self.tally.read_text().splitlines()
        return [line[5:].split(' -- ')[0] for line in lines if line.startswith('FAIL ')]

    def stop(self):
        end(self.process)
        _running.discard(self.process)

    def forget(self):
        self.tally.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)


class Next(enum.Enum):
    GO_ON, AGAIN, STOP = range(3)


def together(stage, start, finished):
    """Runs all parts of a stage; `finished(run, verdict)` decides what is next. Unit tests mostly
    wait and run in parallel; the simulation is CPU-bound, so only one instance runs at a time."""
    waiting, running = list(stage), []
    try:
        while waiting or running:
            for part in list(waiting):
                if part[0] == parts.SIMULATION and any(r.part[0] == part[0] for r in running):
                    continue
                waiting.remove(part)
                running.append(start(part))
            time.sleep(0.02)
            for each in list(running):
                verdict = each.verdict()
                if verdict is None:
                    continue
                then = finished(each, verdict)
                running.remove(each)
                each.forget()
                if then == Next.STOP:
                    return
                if then == Next.AGAIN:
                    waiting.append(each.part)
    finally:
        for each in running:
            each.stop()
            each.forget()
