# SPDX-License-Identifier: BSD-3-Clause
"""Description of the measured machine, without its name, for the head of the report."""

import os
import re
import subprocess
import time
from pathlib import Path

from .processes import BUILD, cores


def first(argv, pattern=r"(.+)"):
    """The first match of the pattern in a command's output, or None."""
    try:
        done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=20,
                              stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(pattern, done.stdout + done.stderr)
    return match.group(1).strip() if match else None


def package(*names):
    """The version of an installed package; requires dpkg."""
    for name in names:
        version = first(["dpkg-query", "-W", "-f", "${Version}\n", name], r"^(\S+)$")
        if version:
            return version
    return None


def processor():
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return match.group(1) if match else None


def guest_kernel():
    """The kernel that the microVM boots: the one its newest cached initramfs was made for."""
    cached = sorted(Path("build/softroce").glob("initramfs-*"), key=lambda f: f.stat().st_mtime)
    match = re.match(r"initramfs-(.+)-\d+$", cached[-1].name) if cached else None
    return match.group(1) if match else None


def versions():
    valkey = os.environ.get("VALKEY")
    return {
        "aeconn": first([BUILD / "kv-server", "--version"]),
        "compiler": first([os.environ.get("CXX", "g++"), "--version"]),
        "libev": package("libev4", "libev4t64", "libev-dev"),
        "OpenSSL": first(["openssl", "version"], r"OpenSSL (\S+)"),
        "rdma-core": package("rdma-core", "libibverbs1", "libibverbs1t64"),
        "redis-server": first(["redis-server", "--version"], r"v=(\S+)"),
        "redis-benchmark": first(["redis-benchmark", "--version"], r"redis-benchmark (\S+)"),
        "memcached": first(["memcached", "-V"], r"memcached (\S+)"),
        "perftest": package("perftest"),
        "rstream (rdmacm-utils)": package("rdmacm-utils"),
        "valkey-server": first([f"{valkey}/valkey-server", "--version"], r"v=(\S+)") if valkey
                         else "VALKEY= names no build of Valkey",
        "QEMU": first(["qemu-system-x86_64", "--version"], r"version (\S+)"),
    }


def describe(suite, rounds):
    """The metrics of a header record: date and load are those at the start of a suite."""
    return {"suite": suite, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "rounds": rounds,
            "valkey": bool(os.environ.get("VALKEY")), "processor": processor(), "cores": len(cores()),
            "kernel": os.uname().release, "guest_kernel": guest_kernel(),
            "load": [round(x, 2) for x in os.getloadavg()], "versions": versions()}
