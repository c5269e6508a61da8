# SPDX-License-Identifier: BSD-3-Clause
"""Runs the tests on a change."""

import json
import threading
import time

from . import parts, visits
from .runs import Next, Run, Verdict, for_catch, together


_SOON = 2  # seconds of tests, by their duration without a change
_AT_ONCE = 3


class Judge:
    """Measures how long tests take without a change, and runs them on a changed program."""

    def __init__(self, original, folder, simulation, budget, tell):
        """`budget`: seconds for tests that run the changed line; None: all tests are run."""
        self._budget = budget
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
        self._visits = None if budget is None else \
            visits.Visits(original, folder, simulation, self._known['of'], tell)

    def _without(self, spec):
        """Leaves out tests that fail without any change."""
        left_out = ''.join(f'~"{for_catch(name)}"' for name in self._known['left out'])
        return ','.join(alternative + left_out for alternative in spec.split(','))

    def _bounds(self, part):
        """Time limits for the whole part, and for one test."""
        return [3 * seconds + 20 for seconds in self._known['seconds'][' '.join(part)]]

    def _measure(self, stage):
        """Measures each part on the original, where all tests must pass."""
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
                    # One failure may be chance on a busy machine.
                    if self._alone(self._original.program(measured.part[0]), measured.part, name,
                                   self._folder / 'logs', (1200, 1200)):
                        self._tell(f'left out, since it fails without any change: {name}')
                        self._known['left out'].append(name)
                self._known['seconds'][' '.join(measured.part)] = [seconds, measured.longest]
                self._times_file.write_text(json.dumps(self._known, indent=1))
                return Next.GO_ON

            together(unknown, start, finished)

    def _ask(self, place, stage):
        """Runs all parts of a stage in parallel, until one of them notices the change."""
        self._measure(stage)
        return self._ask_these(place, {part: (self._without(part[1]), self._bounds(part))
                                       for part in stage})

    def _ask_these(self, place, stage):
        """`stage`: for each part its tests and their time limits."""
        doubted, answer = set(), Verdict(False)

        def start(part):
            spec, bounds = stage[part]
            return Run(place.link(part[0]), part, spec, place.path / 'build/logs',
                       self._original.path, bounds)

        def finished(tried, verdict):
            nonlocal answer
            if not verdict.noticed:
                return Next.GO_ON
            # A test that fails by chance ends its part only once, so that later tests still run. On
            # a busy machine any test may take too long by chance.
            if tried.part in doubted or \
               (not verdict.hangs and self._again(place, tried, stage[tried.part][1])):
                answer = verdict
                return Next.STOP
            doubted.add(tried.part)
            return Next.AGAIN

        together(stage, start, finished)
        return answer

    def _again(self, place, noticed, bounds):
        """Whether a failed test fails again, alone; a crash is never chance."""
        failed = noticed.failed()
        return not failed or self._alone(place.link(noticed.part[0]), noticed.part, failed[0],
                                         place.path / 'build/logs', bounds)

    def _alone(self, program, part, name, folder, bounds):
        once_more = Run(program, part, for_catch(name), folder, self._original.path, bounds)
        while (verdict := once_more.verdict()) is None:
            time.sleep(0.02)
        once_more.forget()
        return verdict.noticed

    def _chosen(self, change):
        """Two stages of the tests that run the line: first the ones most likely to notice, if
        fast; then the others that fit into the budget."""
        chosen = [test for test in self._visits.of_line(change.file, change.line)
                  if self._simulation or test[0] == parts.UNIT]
        stages, spent = [{}, {}], 0.0
        for program, name, seconds in chosen:
            if spent + seconds > self._budget and spent > 0:
                continue  # a shorter one may fit
            spent += seconds
            stage = stages[spent > _SOON]
            at_once = _AT_ONCE if program == parts.UNIT and spent > _SOON else 1
            shares = [stage.setdefault((program, f'part {i + 1}'), []) for i in range(at_once)]
            min(shares, key=lambda share: sum(test[1] for test in share)).append((name, seconds))
        return [{part: (','.join(for_catch(name) for name, _ in share), self._room(share))
                 for part, share in stage.items() if share} for stage in stages]

    @staticmethod
    def _room(share):
        return (3 * sum(seconds for _, seconds in share) + 15,
                3 * max(seconds for _, seconds in share) + 15)

    def judge(self, place, change):
        if self._visits is None:
            return self._judge_by_all(place, change)
        for stage in self._chosen(change):
            verdict = self._ask_these(place, stage)
            if verdict.noticed:
                return verdict
        seen = self._visits.seen(change.file, change.line)
        return Verdict(False, '' if seen else 'no test was seen to run it')

    def _judge_by_all(self, place, change):
        for stage in [*parts.first(change.file), parts.rest(change.file)]:
            if not self._simulation:
                stage = [part for part in stage if part[0] == parts.UNIT]
            verdict = self._ask(place, stage)
            if verdict.noticed:
                return verdict
        return Verdict(False)
