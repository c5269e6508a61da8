"""Runs test programs, and says whether they notice."""

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


def prepare():
    """A program that is broken may crash and write without end: no core, no file above 1 GiB."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


def stop_all():
    for each in list(_running):
        end(each)


def for_catch(name):
    """A test's name as Catch2 takes it for that one test."""
    return ''.join('\\' + c if c in '\\,[]' else c for c in name)


@dataclass
class Verdict:
    noticed: bool
    by: str = ''


class Run:
    """A part of the tests on one program, under way."""

    def __init__(self, program, part, spec, folder, cwd, bound, first_failure=True):
        """Of `part` the tests that `spec` chooses."""
        name = part[0]
        self.part, self.bound, self.begun = part, bound, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        stem = f'{name}.{abs(hash((spec, self.begun))):x}'
        self.tally, self.log = folder / f'{stem}.tally', folder / f'{stem}.log'
        self.tally.write_text('')
        environment = dict(os.environ, AECONN_TEST_TALLY=str(self.tally), AECONN_PROFILE='rxe')
        launcher = _ROUND if name == parts.SIMULATION else []
        with self.log.open('w') as log:
            self.process = subprocess.Popen(
                [*launcher, str(program), spec, *(['--abort'] if first_failure else [])], cwd=cwd,
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)
        _running.add(self.process)

    def verdict(self):
        """None while it runs."""
        status = self.process.poll()
        if status is None:
            if time.monotonic() - self.begun < self.bound:
                return None
            self.stop()
            return Verdict(True, f'hangs in {self.part[0]} {self.part[1]}')
        self.stop()  # what it may have left
        failed = self.failed()
        if failed:
            return Verdict(True, failed[0])
        return Verdict(status != 0, f'status {status} of {self.part[0]} {self.part[1]}')

    def failed(self):
        return [line[5:] for line in self.tally.read_text().splitlines() if line.startswith('FAIL ')]

    def stop(self):
        end(self.process)
        _running.discard(self.process)

    def forget(self):
        self.tally.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)


class Judge:
    """Knows how long each part takes without a change, and asks the tests about one with it."""

    def __init__(self, original, folder, tell):
        self._original, self._folder, self._tell = original, folder, tell
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

    def _seconds(self, part):
        """How long the part takes on the original, where all of it has to pass."""
        with self._lock:
            key = ' '.join(part)
            while key not in self._known['seconds']:
                attempt = Run(self._original.program(part[0]), part, self._without(part[1]),
                              self._folder / 'logs', self._original.path, 1200, first_failure=False)
                while (verdict := attempt.verdict()) is None:
                    time.sleep(0.05)
                seconds = time.monotonic() - attempt.begun
                failed = attempt.failed()
                if verdict.noticed and not failed:
                    raise SystemExit(f'without any change: {verdict.by}, see {attempt.log}')
                attempt.forget()
                if failed:
                    for name in failed:
                        self._tell(f'left out, since it fails without any change: {name}')
                    self._known['left out'] += failed
                else:
                    self._known['seconds'][key] = seconds
                    self._times_file.write_text(json.dumps(self._known, indent=1))
            return self._known['seconds'][key]

    def _start(self, place, part):
        bound = 3 * self._seconds(part) + 20
        return Run(place.link(part[0]), part, self._without(part[1]), place.path / 'build/logs',
                   self._original.path, bound)

    def _together(self, place, stage):
        """All parts of a stage at once, till one of them notices."""
        waiting, running, doubted = list(stage), [], set()
        try:
            while waiting or running:
                # Unit tests wait, the simulation works: of those one at a time.
                for part in list(waiting):
                    if part[0] == parts.SIMULATION and any(r.part[0] == part[0] for r in running):
                        continue
                    waiting.remove(part)
                    running.append(self._start(place, part))
                time.sleep(0.02)
                for each in list(running):
                    verdict = each.verdict()
                    if verdict is None:
                        continue
                    running.remove(each)
                    if not verdict.noticed:
                        each.forget()
                        continue
                    # A test that fails by chance stops its part only once: what comes after it is
                    # to run.
                    certain = each.part in doubted or self._again(place, each)
                    each.forget()
                    if certain:
                        return verdict
                    doubted.add(each.part)
                    waiting.append(each.part)
            return Verdict(False)
        finally:
            for each in running:
                each.stop()
                each.forget()

    def _again(self, place, noticed):
        """Whether a test that failed fails once more, alone; crashes and hangs are no chance."""
        failed = noticed.failed()
        if not failed:
            return True
        once_more = Run(place.link(noticed.part[0]), noticed.part, for_catch(failed[0]),
                        place.path / 'build/logs', self._original.path, noticed.bound)
        while (verdict := once_more.verdict()) is None:
            time.sleep(0.02)
        once_more.forget()
        return verdict.noticed

    def judge(self, place, change):
        for stage in [[part] for each in parts.first(change.file) for part in each] + \
                     [parts.rest(change.file)]:
            verdict = self._together(place, stage)
            if verdict.noticed:
                return verdict
        return Verdict(False)
