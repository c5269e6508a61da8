# SPDX-License-Identifier: BSD-3-Clause
"""Processes changes in order, some in parallel, until the wanted number has been judged."""

import threading
import time
from dataclasses import dataclass

from .tree import Workplace


@dataclass
class Result:
    change: object
    noticed: bool
    by: str
    seconds: float


class Workers:
    def __init__(self, original, judge, root, folder, order, accepted, count, tell):
        self._original, self._judge, self._root, self._folder = original, judge, root, folder
        self._order, self._accepted, self._count, self._tell = iter(order), accepted, count, tell
        self._lock = threading.Condition()
        self._under_way = 0
        self._stopped = None
        self.results, self.left_out = [], {'accepted': 0, 'not compiled, or the same program': 0}

    def run(self, workers):
        folders = [self._folder / f'worker-{i}' for i in range(workers)]
        threads = [threading.Thread(target=self._work, args=(folder,), daemon=True)
                   for folder in folders]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
        if self._stopped:
            raise self._stopped

    def _next(self):
        """Which changes are judged does not depend on timing: at most the wanted number is in
        progress, so another one is drawn only to replace one that was left out."""
        with self._lock:
            while self._under_way and len(self.results) + self._under_way >= self._count:
                self._lock.wait()
            if self._stopped or len(self.results) >= self._count:
                return None
            for change in self._order:
                if change.same() not in self._accepted:
                    self._under_way += 1
                    return change
                self.left_out['accepted'] += 1
            return None

    def _work(self, folder):
        try:
            place = Workplace(self._original, self._root, folder)
            while (change := self._next()) is not None:
                begun = time.monotonic()
                result = None
                if place.compile(change):
                    verdict = self._judge.judge(place, change)
                    result = Result(change, verdict.noticed, verdict.by, time.monotonic() - begun)
                self._done(result)
        except BaseException as error:  # all workers end, and the caller gets the error
            with self._lock:
                self._stopped = self._stopped or error
                self._lock.notify_all()

    def _done(self, result):
        with self._lock:
            self._under_way -= 1
            if result is None:
                self.left_out['not compiled, or the same program'] += 1
            else:
                self.results.append(result)
                self._say(result)
            self._lock.notify_all()

    def _say(self, result):
        change = result.change
        answer = f'noticed by {result.by}' if result.noticed else \
            ': '.join(filter(None, ['SURVIVED', result.by]))
        self._tell(f'[{len(self.results)}/{self._count}] {change.file}:{change.line}: '
                   f'{change.what}: {answer} ({result.seconds:.1f} s)')
        if not result.noticed:
            self._tell(f'    - {change.before}\n    + {change.after}')
