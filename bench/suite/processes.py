# SPDX-License-Identifier: BSD-3-Clause
"""Servers and load generators as processes, and their cost as reported by the kernel."""

import ctypes
import os
import re
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path

BUILD = Path(os.environ.get("AECONN_BUILD", "build"))


class Failure(Exception):
    """A measurement failed; the text is one sentence."""


def cores():
    return sorted(os.sched_getaffinity(0))


def on_core(argv, core):
    """`argv` bound to the core-th processor; on a single processor, all share it."""
    usable = cores()
    if core is None or len(usable) < 2:
        return list(argv)
    return ["taskset", "-c", str(usable[core % len(usable)]), *map(str, argv)]


def cpu_ns(pid):
    """Processor time of all of a process's threads, including kernel time."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass  # the thread ended meanwhile
    return total


def status_kib(pid, key):
    """A line of /proc/PID/status in KiB: VmRSS, VmPin."""
    match = re.search(rf"^{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(match.group(1)) if match else 0


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Server:
    """A process that announces when it is ready, and is ended by the `with` block."""

    def __init__(self, argv, ready, core=0, env=None, patience=60):
        self.argv = [str(a) for a in argv]
        self._log = tempfile.NamedTemporaryFile("w+", prefix="aeconn-bench-", suffix=".log")
        self._process = subprocess.Popen(
            on_core(self.argv, core), stdout=self._log, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        self.pid = self._process.pid
        deadline = time.monotonic() + patience
        while not (callable(ready) and ready() or not callable(ready) and re.search(ready, self.log(), re.M)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = self.log().strip()
                self.stop()
                raise Failure(f"{self.argv[0]} did not start: {text or 'it said nothing'}")
            time.sleep(0.02)

    def log(self):
        return Path(self._log.name).read_text(errors="replace")

    def cpu_ns(self):
        return cpu_ns(self.pid)

    def alive(self):
        return self._process.poll() is None

    def find(self, pattern):
        match = re.search(pattern, self.log(), re.M)
        if not match:
            raise Failure(f"{self.argv[0]}: no \"{pattern}\" in what it printed")
        return match.group(1)

    def stop(self):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def run(argv, core=1, timeout=180, env=None):
    """Standard output of a command that must succeed."""
    argv = [str(a) for a in argv]
    try:
        done = subprocess.run(on_core(argv, core), capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(argv)} did not end within {timeout} s") from None
    except FileNotFoundError:
        raise Failure(f"{argv[0]} is not installed") from None
    if done.returncode != 0:
        raise Failure(f"{' '.join(argv)}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


class SystemCalls:
    """Counts a process's system calls by name ("*": all). Requires access to the kernel's
    tracepoints: root, on a stock kernel."""

    FOLDER = Path("/sys/kernel/tracing")

    def __init__(self, pid, names=("*",)):
        self._counters = {}
        for name in names:
            event = "raw_syscalls/sys_enter" if name == "*" else f"syscalls/sys_enter_{name}"
            try:
                number = int((self.FOLDER / "events" / event / "id").read_text())
            except OSError as error:
                raise Failure(f"system calls cannot be counted: {error}") from None
            self._counters[name] = [self._open(number, int(task)) for task in os.listdir(f"/proc/{pid}/task")]

    @staticmethod
    def _open(tracepoint, task):
        libc = ctypes.CDLL(None, use_errno=True)
        # perf_event_attr: type PERF_TYPE_TRACEPOINT, size, config; the rest is zero.
        attributes = ctypes.create_string_buffer(struct.pack("IIQ", 2, 112, tracepoint), 112)
        perf_event_open = 298 if os.uname().machine == "x86_64" else 241  # AArch64 and all newer ones
        descriptor = libc.syscall(perf_event_open, attributes, task, -1, -1, 0)
        if descriptor < 0:
            raise Failure(f"system calls cannot be counted: {os.strerror(ctypes.get_errno())}")
        return descriptor

    @staticmethod
    def available():
        if not (SystemCalls.FOLDER / "events").exists() and os.getuid() == 0:
            subprocess.run(["mount", "-t", "tracefs", "none", SystemCalls.FOLDER], capture_output=True)
        return (SystemCalls.FOLDER / "events/raw_syscalls").exists()

    def read(self):
        return {name: sum(struct.unpack("Q", os.read(d, 8))[0] for d in descriptors_)
                for name, descriptors_ in self._counters.items()}

    def close(self):
        for list_ in self._counters.values():
            for descriptor in list_:
                os.close(descriptor)
        self._counters = {}
