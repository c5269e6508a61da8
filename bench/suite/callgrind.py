# SPDX-License-Identifier: BSD-3-Clause
"""Servers under callgrind: instructions of user space, data references and cache misses, as a whole
and by function."""

import os
import re
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from .processes import Failure, Server, run

# The C library selects its memcpy by the processor; the generic ones have the same count
# everywhere.
PLAIN = "glibc.cpu.hwcaps=" + ",".join(
    "-" + name
    for name in ("AVX512F", "AVX512VL", "AVX2", "AVX", "ERMS", "FSRM", "SSE4_2", "SSSE3"))
# The simulated caches are the same on every machine: 32 KiB and 8 MiB.
CACHES = ("--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=8388608,16,64")


class CountedServer(Server):
    """A server under callgrind. Libraries are included, the kernel is not."""

    def __init__(self, argv, ready, env=None, caches=CACHES):
        if not shutil.which("valgrind"):
            raise Failure("valgrind does the counting and is not installed (apt-get install valgrind)")
        self._folder = tempfile.TemporaryDirectory(prefix="aeconn-callgrind-")
        self._out = Path(self._folder.name) / "out"
        self._prefix = f"--vgdb-prefix={self._folder.name}/vgdb"
        self._dumps = 0
        # An otherwise empty environment: its size would move the stack.
        super().__init__(["env", "-i", f"PATH={os.environ['PATH']}", f"GLIBC_TUNABLES={PLAIN}",
                          *(f"{name}={value}" for name, value in (env or {}).items()), "valgrind", "-q", "--tool=callgrind", *caches, self._prefix,
                          f"--callgrind-out-file={self._out}", *argv], ready, patience=300)

    def take(self):
        """A Profile of what ran since the previous call."""
        self._settle()
        run(["vgdb", self._prefix, f"--pid={self.pid}", "dump", "counted"], timeout=60)
        self._dumps += 1
        path = Path(f"{self._out}.{self._dumps}")
        try:
            return Profile(path.read_text(errors="replace"))
        finally:
            path.unlink(missing_ok=True)

    def _settle(self):
        """Waits until the server only has its timers: the load's connections are closed by then."""
        for _ in range(100):
            before = self.cpu_ns()
            time.sleep(0.3)
            if self.cpu_ns() - before < 10_000_000:
                break

    def stop(self):
        super().stop()
        self._folder.cleanup()


class Profile:
    """A dump of callgrind: self costs, summed by event, and instructions by function."""

    def __init__(self, text):
        self.events, self.functions = Counter(), Counter()
        names, place, of_call = {}, {"ob": "", "fl": "", "fn": ""}, False
        for line in text.splitlines():
            kind, equals, rest = line.partition("=")
            if equals and kind in ("ob", "fl", "fn", "cob", "cfn", "cfi", "cfl", "fi", "fe"):
                number, _, name = rest.partition(" ")
                # A name is given with the first use of its number; files, objects and functions
                # have numbers of their own.
                key = "fn" if kind.endswith("fn") else "ob" if kind.endswith("ob") else "file", number
                if name:
                    names[key] = name
                if kind in place:
                    place[kind] = names.get(key, number)
            elif kind == "calls":
                of_call = True  # the next line is the cost of what was called
            elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
                if not of_call:
                    costs = [int(cost) for cost in line.split()[1:]]
                    self.events.update(dict(zip(order, costs)))
                    self.functions[place["ob"], place["fl"], place["fn"].partition("'")[0]] += costs[0]
                of_call = False
            elif line.startswith("events: "):
                order = line.split()[1:]

    def each(self, shorter, number):
        """The cost of one of the `number` messages that this profile has more than `shorter`."""
        result = Profile("")
        for mine, other, to in ((self.events, shorter.events, result.events),
                                (self.functions, shorter.functions, result.functions)):
            for key in {**mine, **other}:
                to[key] = (mine[key] - other[key]) / number
        return result

    def misses(self, cache):
        """Of "D1" or "LL": of data, by reads and writes."""
        return sum(self.events[f"{'DL' if cache == 'LL' else cache}m{way}"] for way in "rw")

    def references(self):
        return self.events["Dr"] + self.events["Dw"]

    def rooms(self):
        """{room: instructions}, the dearest first."""
        rooms = Counter()
        for key, cost in self.functions.items():
            rooms[room(*key)] += cost
        return dict(rooms.most_common())

    def list(self, least):
        """[(instructions, room, function)] of the functions with at least `least`."""
        return [(cost, room(*key), short(key[2])) for key, cost in self.functions.most_common()
                if cost >= least]


LIBRARIES = {"libc": r"libc\.|ld-|libm\.", "libstdc++": r"libstdc\+\+|libgcc", "libev": r"libev\.",
             "libibverbs, provider": r"libibverbs|librdmacm|.*-rdmav\d+\.so|libmlx|libefa",
             "libssl, libcrypto": r"libssl|libcrypto"}


def room(object_, file, function):
    """The room of the tree, or the library, that a function belongs to."""
    for name, pattern in LIBRARIES.items():
        if re.match(pattern, os.path.basename(object_)):
            return name
    # By namespace: the file may be that of an inlined function, and templates of the standard library
    # belong to what they are instantiated for. Only rooms that share a namespace differ by the file.
    match = re.search(r"\b(ae|conn)::aeconn_\w+::(?:(rdma|tcp|tls|co)::)?", function)
    if match and (match[1] == "ae" or match[2]):
        return "/".join(filter(None, match.groups()))
    folder = re.search(r"(?:^|/)(conn/\w+|bindings/\w+)/", file)
    if folder or match:
        return folder[1] if folder else match[1]
    return "the server" if object_ and not object_.startswith("?") else "other"


def short(function):
    """A function's name without parameters and inline namespaces."""
    name = re.sub(r"\(anonymous namespace\)::|\baeconn_\d+_\d+::|\[clone [^]]*\]", "", function)
    while (less := re.sub(r"\([^()]*\)", "", name)) != name:
        name = less
    return name[:100].strip()
