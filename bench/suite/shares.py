# SPDX-License-Identifier: BSD-3-Clause
"""Limits each thread of a server to a share of a processor with the kernel's bandwidth control: the
cpu controller of cgroups(7), version 1, or version 2 with threaded groups.

A thread that has used its share waits for the next period. A server can thus be limited by
processor time while the load beside it is not, even on few processors.
"""

import errno
import os
import time
from pathlib import Path

from .processes import Failure, Server

PERIOD_US = 10_000


def _write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))


def _mounted():
    """(version, folder) of the hierarchy with the cpu controller."""
    second = None
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            return 1, Path(folder)
        if kind == "cgroup2":
            second = Path(folder)
    try:
        if second and "cpu" in (second / "cgroup.controllers").read_text(encoding="ascii").split():
            return 2, second
    except OSError:
        pass
    raise Failure("no control group with the controller cpu is mounted here")


class Shares:
    """Groups of threads, each thread with a share of a processor."""

    def __init__(self):
        self._groups = []

    def give(self, pid, part):
        """Gives each current thread of the process `part` of a processor."""
        version, top = _mounted()
        quota = int(PERIOD_US * part)
        folder = top / f"aeconn-bench-{os.getpid()}-{pid}"
        try:
            self._make(folder)
            if version == 2:
                # A threaded domain contains the process; its threads are in groups below.
                if "cpu" not in (top / "cgroup.subtree_control").read_text(encoding="ascii").split():
                    _write(top / "cgroup.subtree_control", "+cpu")
                _write(folder / "cgroup.procs", pid)
            for thread in os.listdir(f"/proc/{pid}/task"):
                group = self._make(folder / thread)
                if version == 2:
                    _write(group / "cgroup.type", "threaded")
                    _write(folder / "cgroup.subtree_control", "+cpu")
                    _write(group / "cpu.max", f"{quota} {PERIOD_US}")
                    _write(group / "cgroup.threads", thread)
                else:
                    _write(group / "cpu.cfs_period_us", PERIOD_US)
                    _write(group / "cpu.cfs_quota_us", quota)
                    _write(group / "tasks", thread)
        except OSError as error:
            raise Failure(f"threads cannot be given shares of a processor: {error}") from None

    def _make(self, group):
        group.mkdir()
        self._groups.append(group)
        return group

    def close(self):
        """Call this after the process has ended: the kernel may remove its groups with a delay."""
        deadline = time.monotonic() + 10
        while self._groups:
            try:
                self._groups[-1].rmdir()
            except OSError as error:
                if error.errno == errno.EBUSY and time.monotonic() < deadline:
                    time.sleep(0.01)
                    continue
                if error.errno != errno.ENOENT:
                    raise Failure(f"a control group stays behind: {error}") from None
            self._groups.pop()


class SharedServer(Server):
    """A server whose threads each have `part` of a processor once it is ready."""

    def __init__(self, argv, ready, part, **options):
        self._shares = Shares()
        super().__init__(argv, ready, **options)
        try:
            self._shares.give(self.pid, part)
        except Failure:
            self.stop()
            raise

    def stop(self):
        super().stop()
        self._shares.close()
