"""Runs test programs, and says whether they notice."""

import enum
import json
import os
import resource
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass

from . import parts
from .tree import end

_ROUND = ['setarch', '-R'] if shutil.which('setarch') else []  # addresses alike in every run


_running = set()
_stopped = threading.Event()


def prepare():
    """A program that is broken may crash and write without end: no core, no file above 1 GiB."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


def stop_all():
    """None is left, and none begins any more."""
    _stopped.set()
    for each in list(_running):
        end(each)


def for_catch(name):
    """A test's name as Catch2 takes it for that one test."""
    return ''.join('\\' + c if c in '\\,[]' else c for c in name)


@dataclass
class Verdict:
    noticed: bool
    by: str = ''
    hangs: bool = False


class Run:
    """A part of the tests on one program, under way."""

    def __init__(self, program, part, spec, folder, cwd, bounds, first_failure=True):
        """Of `part` the tests that `spec` chooses."""
        name = part[0]
        self.part, self.begun, self.longest = part, time.monotonic(), 0.0
        self._whole, self._silence = bounds
        self._size, self._grew = 0, self.begun
        folder.mkdir(parents=True, exist_ok=True)
        stem = f'{name}.{abs(hash((spec, self.begun))):x}'
        self.tally, self.log = folder / f'{stem}.tally', folder / f'{stem}.log'
        self.tally.write_text('')
        environment = dict(os.environ, AECONN_TEST_TALLY=str(self.tally), AECONN_PROFILE='rxe')
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
        """None while it runs."""
        status = self.process.poll()
        if status is None:
            if not self._hangs():
                return None
            self.stop()
            return Verdict(True, f'hangs in {self.part[0]} {self.part[1]}', hangs=True)
        self.stop()  # what it may have left
        failed = self.failed()
        if failed:
            return Verdict(True, failed[0])
        return Verdict(status != 0, f'status {status} of {self.part[0]} {self.part[1]}')

    def _hangs(self):
        """Every test that ends is a line in the log."""
        now, size = time.monotonic(), self.log.stat().st_size
        if size != self._size:
            self._size, self._grew = size, now
        self.longest = max(self.longest, now - self._grew)
        return now - self.begun > self._whole or now - self._grew > self._silence

    def failed(self):
        lines = self.tally.read_text().splitlines()
        return [line[5:] for line in lines if line.startswith('FAIL ')]

    def stop(self):
        end(self.process)
        _running.discard(self.process)

    def forget(self):
        self.tally.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)


class Next(enum.Enum):
    GO_ON, AGAIN, STOP = range(3)


def _together(stage, start, finished):
    """Runs all parts of a stage; `finished(run, verdict)` says what next. Unit tests wait, and run
    at the same time; the simulation works, so there is one of it at a time."""
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


class Judge:
    """Knows how long each part takes without a change, and asks the tests about one with it."""

    def __init__(self, original, folder, simulation, tell):
        self._original, self._folder, self._tell = original, folder, tell
        self._simulation = simulation
        self._lock = threading.Lock()
        self._times_file = folder / 'times.json'
        programs = [original.program(name) for name in (parts.UNIT, parts.SIMULATION)]
        self._known = {'of': [[path.stat().st_size, path.stat().st_mtime] for path in programs],
                       'seconds': {}, 'left out': []}
        if self._times_file.exists():
            known = json.loads(self._times_file.read_text())
            if known.get('of') == self._known['of']:
                self._known = known

    def _without(self, spec):
        """Tests that fail without any change say nothing."""
        left_out = ''.join(f'~"{for_catch(name)}"' for name in self._known['left out'])
        return ','.join(alternative + left_out for alternative in spec.split(','))

    def _bounds(self, part):
        """For all of it, and for one test."""
        return [3 * seconds + 20 for seconds in self._known['seconds'][' '.join(part)]]

    def _measure(self, stage):
        """How long each part takes on the original, where all of it has to pass."""
        with self._lock:
            unknown = [part for part in stage if ' '.join(part) not in self._known['seconds']]

            def start(part):
                return Run(self._original.program(part[0]), part, self._without(part[1]),
                           self._folder / 'logs', self._original.path, (1200, 1200),
                           first_failure=False)

            def finished(measured, verdict):
                seconds, failed = time.monotonic() - measured.begun, measured.failed()
                if verdict.noticed and not failed:
                    said = measured.log.read_text(errors='replace').splitlines()[-20:]
                    raise SystemExit('\n'.join([f'without any change: {verdict.by}', *said]))
                for name in failed:
                    # Once may be chance, on a machine that is busy.
                    if self._alone(self._original.program(measured.part[0]), measured.part, name,
                                   self._folder / 'logs', (1200, 1200)):
                        self._tell(f'left out, since it fails without any change: {name}')
                        self._known['left out'].append(name)
                self._known['seconds'][' '.join(measured.part)] = [seconds, measured.longest]
                self._times_file.write_text(json.dumps(self._known, indent=1))
                return Next.GO_ON

            _together(unknown, start, finished)

    def _ask(self, place, stage):
        """All parts of a stage at once, till one of them notices."""
        self._measure(stage)
        doubted, answer = set(), Verdict(False)

        def start(part):
            return Run(place.link(part[0]), part, self._without(part[1]), place.path / 'build/logs',
                       self._original.path, self._bounds(part))

        def finished(tried, verdict):
            nonlocal answer
            if not verdict.noticed:
                return Next.GO_ON
            # A test that fails by chance stops its part only once: what comes after it is to run.
            # On a busy machine all may take too long by chance.
            if tried.part in doubted or (not verdict.hangs and self._again(place, tried)):
                answer = verdict
                return Next.STOP
            doubted.add(tried.part)
            return Next.AGAIN

        _together(stage, start, finished)
        return answer

    def _again(self, place, noticed):
        """Whether a test that failed fails once more, alone; a crash is no chance."""
        failed = noticed.failed()
        return not failed or self._alone(place.link(noticed.part[0]), noticed.part, failed[0],
                                         place.path / 'build/logs', self._bounds(noticed.part))

    def _alone(self, program, part, name, folder, bounds):
        once_more = Run(program, part, for_catch(name), folder, self._original.path, bounds)
        while (verdict := once_more.verdict()) is None:
            time.sleep(0.02)
        once_more.forget()
        return verdict.noticed

    def judge(self, place, change):
        for stage in [*parts.first(change.file), parts.rest(change.file)]:
            if not self._simulation:
                stage = [part for part in stage if part[0] == parts.UNIT]
            verdict = self._ask(place, stage)
            if verdict.noticed:
                return verdict
        return Verdict(False)
