#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The Python code of bench/: a row measured on this machine gives figures and a report; medians,
# ratios, spread and verdicts on targets are correct for known values.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
command -v python3 >/dev/null || { echo 'skipped: python3 is not installed'; total; exit; }
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=bench
unset VALKEY
py() {  # NAME: the program on standard input ends well
  local out
  if out=$(timeout 20 python3 - "$work" 2>&1); then ok "$1"; else fail "$1" "${out: -400}"; fi
  grep '^skipped: ' <<<"$out"
}

py 'median and spread' <<'END'
from suite.figures import Figures
f = Figures()
for round_, (mine, theirs) in enumerate(((10, 5), (30, 10), (20, 20), (40, 10))):
    f.add("row", "aeconn", round_, rps=mine)
    f.add("row", "redis", round_, rps=theirs)
assert f.median("row", "aeconn", "rps") == 25
assert f.spread("row", "aeconn", "rps") == (25, 10, 40)
assert f.spread("row", "nobody", "rps") is None
END
py 'ratios are taken within a round' <<'END'
from suite.figures import Figures
f = Figures()
for round_, (mine, theirs) in enumerate(((10, 5), (30, 10), (20, 20))):
    f.add("row", "aeconn", round_, rps=mine)
    f.add("row", "redis", round_, rps=theirs)
f.add("row", "aeconn", 3, rps=1000)  # a round of one only
assert f.ratio("row", "aeconn", "redis", "rps") == (2, 1, 3), f.ratio("row", "aeconn", "redis", "rps")
assert f.ratio("row", "aeconn", "memcached", "rps") is None
END
py 'figures are kept and read again' <<'END'
import sys
from suite.figures import Figures
path = sys.argv[1] + "/kept.jsonl"
f = Figures(path)
f.add("header", "machine", 0, cores=2)
f.add("row", "aeconn", 0, rps=1.5, p50_us=None)
g = Figures.read(path)
assert g.records == f.records and g.rows() == ["row"] and g.headers()[0]["cores"] == 2
assert g.median("row", "aeconn", "p50_us") is None
END
py 'callgrind: self costs by function; the cost of one message' <<'END'
from suite.callgrind import Profile
def dump(times):
    return Profile(f"""events: Ir Dr Dw D1mr D1mw DLmr DLmw
summary: {15 * times}

ob=(1) /usr/lib/libc.so.6
fl=(1) memcpy.S
fn=(1) memcpy
7 {2 * times} {times} {times} 1 2

ob=(2) build/server
fl=(2) ./conn/core/connection.cc
fn=(2) conn::aeconn_0_3::Connection::write(void const*, unsigned long)
10 {4 * times} 1
fi=(3) /usr/include/c++/12/tuple
+3 {times}
fe=(2)
cob=(1)
cfi=(1)
cfn=(1)
calls=3 7
-2 {2 * times}
* {times}

fn=(3) std::function<conn::aeconn_0_3::tcp::(anonymous namespace)::Name>::operator()(int) const'2
5 {3 * times}
""")
few, many = dump(10), dump(30)
assert few.events["Ir"] == 110 and few.misses("D1") == 3, few.events
cost = many.each(few, 20)
assert cost.events["Ir"] == 11 and cost.references() == 2 and cost.misses("D1") == 0
assert cost.rooms() == {"conn/core": 6, "conn/tcp": 3, "libc": 2}, cost.rooms()
assert cost.list(3) == [(6, "conn/core", "conn::Connection::write"),
                        (3, "conn/tcp", "std::function<conn::tcp::Name>::operator const")], cost.list(3)
END
verdict() {  # OUR-INSTRUCTIONS LIMIT'S: of target P1, at most 1.02
  timeout 20 python3 - "$@" <<'END'
import sys
from suite.figures import Figures
from suite.targets import Sources, judge
f = Figures()
for who, value in zip(("aeconn", "limit"), sys.argv[1:]):
    f.add("echo tcp c=16 d=1", who, 0, kinsn=float(value))
print(judge("P1", Sources(exact=f)).verdict)
END
}
is 'a target that is met' met "$(verdict 10.1 10)"
has 'a target missed by less than the tolerance' '^met within 3 %: to limit is 1\.04' "$(verdict 10.4 10)"
has 'a target that is not met' '^not met: to limit is 1\.10, not <= 1\.02' "$(verdict 11 10)"
has 'a figure that is missing' '^not measured: no figure of "echo tcp c=16 d=1" for limit' "$(verdict 10)"
has 'a suite that did not run' '^not measured: no figures of `make bench-exact`' "$(verdict)"
py 'a row that failed says why' <<'END'
from suite.figures import Figures
from suite.targets import Sources, judge
f = Figures()
f.add("missing", "tcp-echo", 0, why="epoll-echo did not start")
assert judge("P1", Sources(exact=f)).verdict == "not measured: epoll-echo did not start"
END
py 'a row that wants Valkey says so' <<'END'
from suite.figures import Figures
from suite.targets import Sources, judge
f = Figures()
f.add("header", "machine", 0, valkey=False)
f.add("valkey-benchmark rdma get c=16 P=1", "aeconn", 0, rps=100)
assert judge("T1a", Sources(exact=f)).verdict == "not measured: VALKEY= names no build of Valkey"
END
py 'at least, zero, and what is only reported' <<'END'
from suite.figures import Figures
from suite.targets import Sources, judge, judge_all
f = Figures()
for who, rps in (("aeconn", 130), ("valkey", 100)):
    for transport in ("rdma", "tcp"):
        f.add(f"valkey-benchmark {transport} get c=16 P=1", who, 0, rps=rps)
        f.add(f"valkey-benchmark {transport} get c=16 P=16", who, 0, rps=rps)
f.add("receiver not ready", "device", 0, send_rnr_err=0, rcvd_rnr_err=0)
s = Sources(exact=f)
assert judge("T1a", s).verdict == "met" and judge("R1", s).verdict == "met"
assert judge("T2", s).verdict == "measured: within"
f.add("receiver not ready", "device", 0, send_rnr_err=1)
assert judge("R1", s).verdict.startswith("not met")
assert len(judge_all(s)) == 37 and len(judge_all(Sources())) == 37
END
py 'a target of both loops is missed by either' <<'END'
from suite.figures import Figures
from suite.targets import Sources, judge
f = Figures()
for connections in (1, 16, 64):
    row = f"echo rdma, bare client c={connections} d=1"
    for who, kinsn in (("limit", 100), ("aeconn", 101), ("EpollLoop", 110 if connections == 16 else 101)):
        f.add(row, who, 0, kinsn=kinsn)
verdict = judge("C1", Sources(exact=f)).verdict
assert verdict == "not met: EpollLoop c=16 is 1.10, not <= 1.03", verdict
END
py 'spin=auto beside what was spun by hand and beside sleep' <<'END'
from suite.figures import Figures
from suite.targets import Sources, judge
f = Figures()
row = "rdma echo 64 B c=1, both processors"
for who, p50, p99, cpu in (("aeconn", 22, 44, 20), ("by hand", 20, 40, 18), ("sleeping", 150, 300, 50),
                           ("auto, its client sleeps", 150, 300, 51)):
    f.add(row, who, 0, p50_us=p50, p99_us=p99, cpu_us=cpu)
s = Sources(softroce=f)
assert judge("L1", s).verdict.startswith("measured: within; not measured: "), judge("L1", s).verdict
assert judge("L3", s).verdict == "measured: within" and judge("L3", s).us == "2.00", judge("L3", s)
assert judge("C4", s).verdict == "measured: outside (auto to none is 1.02, not <= 1.01)", judge("C4", s).verdict
assert "auto to sleeping 0.40 (0.40-0.40)" in judge("C3", s).ratios, judge("C3", s).ratios
END
py 'coroutines beside handlers, on the host: the ratio is shown, judged, and in the report' <<'END'
import contextlib, io
from types import SimpleNamespace
from suite import host, report
from suite.figures import Figures
from suite.targets import Sources, judge
row, f = "co echo tcp c=50 d=1", Figures()
def turns(name, measures):  # a slow round between two others
    for round_, (coroutines, handlers) in enumerate(((3.03, 3), (6.12, 6), (3.09, 3))):
        f.add(name, "coroutines", round_, cpu_us=coroutines)
        f.add(name, "handlers", round_, cpu_us=handlers)
bed = SimpleNamespace(figures=f, turns=turns, few=lambda shapes: {(50, 1): 1}, url=lambda *names: "",
                      echo=lambda *arguments: None)
with contextlib.redirect_stdout(io.StringIO()) as out:
    host.co_echo(bed)
assert "coroutine echo to callback echo: server's CPU 1.02 (1.01-1.03)" in out.getvalue(), out.getvalue()
target = judge("O2", Sources(host=f))
assert target.verdict == "met" and target.ratios == ["coroutine echo to callback echo 1.02 (1.01-1.03)"], target
f.date = "today"
lines = report.suite_part(f, "title", "command", "note")
assert any(line.startswith(f"| {row} |") and line.endswith("| 1.02 (1.01-1.03) |") for line in lines), lines
f.records = [r for r in f.records if r["round"] == 2]
assert judge("O2", Sources(host=f)).verdict.startswith("not met: coroutine echo to callback echo is 1.03"), target
END
py 'the row of the loop has both of our loops' <<'END'
import json
from types import SimpleNamespace
from suite import host
from suite.figures import Figures
line = {"name": "1 ready file", "unit": "ns", "aeconn": 2.0, "epoll_loop": 1.0, "libev": 3.0}
host.run = lambda *arguments, **options: json.dumps({"rows": [line]})
shown = []
f = Figures()
host.loop(SimpleNamespace(rounds=2, figures=f, show=lambda row, who: shown.append((row, who))))
row = "loop: 1 ready file"
assert shown == [(row, who) for who in ("aeconn", "EpollLoop", "libev")], shown
assert f.spread(row, "EpollLoop", "ns") == (1, 1, 1)
END

py 'a share of a processor for each thread, taken back at the end' <<'END'
import os, sys
from pathlib import Path
from suite import shares
from suite.processes import Failure
program = "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start(); " \
          "print('ready', flush=True); time.sleep(1000)"
try:
    version, top = shares._mounted()
    server = shares.SharedServer([sys.executable, "-c", program], "ready", 0.25, core=None)
except Failure as why:  # the rows say so, too
    assert "control group" in str(why) or "cannot be given shares" in str(why), why
    print("skipped:", why)
    sys.exit()
folder = top / f"aeconn-bench-{os.getpid()}-{server.pid}"
quotas = {g.name: (g / ("cpu.max" if version == 2 else "cpu.cfs_quota_us")).read_text().split()[0]
          for g in folder.iterdir() if g.is_dir()}
assert quotas == dict.fromkeys(os.listdir(f"/proc/{server.pid}/task"), "2500") and len(quotas) == 2, quotas
server.stop()
assert not folder.exists()
END

# ---- a row and a report ---------------------------------------------------------------------------
config=release
case $build in */build/*) config=${build##*/} ;; esac
make bench-programs CONFIG="$config" >"$work/make.log" 2>&1 || fail 'make bench-programs' "$(tail -n 5 "$work/make.log")"
out=$(AECONN_BUILD=$work/none bench/run host --quick 2>&1)
is 'bench/run without its programs: status' 2 $?
has 'bench/run without its programs: what to do' \
  "the programs that it measures are not in $work/none: run .make all bench-programs. first" "$out"
export AECONN_BUILD=$build
out=$(timeout 60 bench/run host --quick --only unix-echo --out "$work/bench/host.jsonl" 2>&1)
is 'bench/run: status' 0 $?
has 'bench/run: shows the row' 'echo unix c=1 d=1 +limit +rps [0-9.]+
echo unix c=1 d=1 +aeconn +rps [0-9.]+' "$out"
py 'bench/run: figures of both' <<'END'
import sys
from suite.figures import Figures
f = Figures.read(sys.argv[1] + "/bench/host.jsonl")
for metric in ("rps", "p50_us", "p99_us", "cpu_us"):
    assert f.ratio("echo unix c=1 d=1", "aeconn", "limit", metric)[0] > 0, metric
END
out=$(timeout 60 bench/run loops --quick --only unix-echo --out "$work/bench/loops.jsonl" 2>&1)
is 'bench/run loops: status' 0 $?
if [ "$(nproc)" -gt 1 ]; then
  has 'bench/run loops: two beside one, and what it cost' 'loops unix c=16 d=16 +2 loops +rps [0-9.]+ .*load_percent [0-9.]+ .*busy [0-9.]+
loops unix c=16 d=16 +1 loop +rps [0-9.]+
loops unix c=16 d=16 +2 loops to 1: rate [0-9.]+ .*server.s CPU [0-9.]+' "$out"
  if [[ $out =~ 'shares 2 loops: not measured: '(no control group|threads cannot be given shares) ]]; then
    echo "skipped: loops with shares of a processor: $(grep -m1 'shares 2 loops: not measured' <<<"$out")"
  else
    has 'bench/run loops: each loop with a share of a processor' \
      'loops unix c=16 d=1 shares +2 loops +rps [0-9.]+ .*share_percent [0-9.]+' "$out"
  fi
else
  has 'bench/run loops: not with one processor' 'not measured: this machine has one core' "$out"
fi
if command -v valgrind >/dev/null; then
  out=$(timeout 300 bench/run messages --quick --only unix-echo --functions --out "$work/messages.jsonl" 2>&1)
  is 'bench/run messages: status' 0 $?
  has 'bench/run messages: a server, its rooms and functions' \
    'unix echo 1x1 64 B +EpollLoop +[0-9.]+ instructions .*ae +ae::EpollLoop::' "$out"
  has 'bench/run messages: the table' 'unix echo +1x1 64 B
bare +[0-9,]+ \(1.00\)
LibevLoop +[0-9,]+ \([0-9.]+\)
EpollLoop +[0-9,]+ \([0-9.]+\)
aim +[0-9,]+' "$out"
else
  echo 'skipped: bench/run messages: valgrind is not installed'
fi
out=$(timeout 60 bench/run report --out "$work/bench" 2>&1)
is 'bench/run report: status' 0 $?
has 'bench/run report: a line for a target' 'P1 .*not measured: no figures of `make bench-exact`' "$out"
report=$(cat "$work/bench/report.md")
has 'report.md: machine, targets, figures' '\| processor \|
\| R2 \|
### echo unix
\| echo unix c=1 d=1 \|
## Two loops beside one' "$report"
is 'report.md: no name of the host, no path' '' \
  "$(grep -nE "(^|[ \`|])/(home|root|tmp|work|usr)/|\b$(uname -n | sed 's/[.]/[.]/g')\b" "$work/bench/report.md" |
     grep -v localhost | head -3)"
timeout 20 bench/run host --only nothing-such --out "$work/none.jsonl" >"$work/out" 2>&1
is 'an unknown row is an error' 1 $?
has 'and the rows there are follow' 'tcp-echo' "$(cat "$work/out")"
total
