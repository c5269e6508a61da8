#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The probes in the built library, read from its ELF notes, must be those of the list in
# conn/kit/probes.h and of the table in docs/tracing.md, with the same number of arguments; the
# programs have them, too.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"

header_list() {  # lines "NAME ARGUMENT..." as the comment has them
  awk '/^\/\/ probe  /, /^$/ {print}' "$1" | tail -n +2 | awk '
    /^\/\/ [a-z]/ {if (line != "") print line; line = $2; $2 = ""; print_next = 1; line = line " " $3; next}
    /^\/\/  / {line = line " " $2}
    END {if (line != "") print line}' | sort
}
page_list() {  # the same, of a table whose rows are | `name` | `arguments`, ... | ...
  sed -nE 's/^\| `([a-z_]+)` \| (`id`[^|]*) \|.*/\1 \2/p' "$1" | tr -d '`,' | sort
}
# "NAME COUNT" for each probe site.
elf_list() {
  readelf -n "$1" | awk '/Provider: aeconn$/ {ours = 1} ours && /Name:/ {name = $2}
                         ours && /Arguments:/ {print name, NF - 1; ours = 0}' | sort -u
}
counts() { awk '{print $1, NF - 1}'; }
without_rdma() { grep -vE '^(post|window_full|window_offered|rnr) '; }

listed=$(header_list conn/kit/probes.h)
has 'the list in the header is read' '^accept id connection type type_size' "$listed"
is 'docs/tracing.md has the same probes and arguments' "$listed" "$(page_list docs/tracing.md)"
is 'a page that lacks one is noticed' no \
  "$(grep -v '^| `rnr`' docs/tracing.md >"$work/page"; [ "$listed" = "$(page_list "$work/page")" ] && echo yes || echo no)"
is 'docs/tracing.md has three one-liners' 3 "$(grep -c '^bpftrace -e' docs/tracing.md)"

made_with=$(sed "s/^ccache //" "$build/flags" 2>/dev/null)
command -v readelf >/dev/null || { fail readelf 'it is not installed (package binutils)'; total; exit; }
cxx=${CXX:-${made_with%% *}} cxx=${cxx:-g++}
if [[ $made_with = *-DAECONN_PROBES=0* ]] || ! $cxx -x c++ -E - <<<'#include <sys/sdt.h>' >/dev/null 2>&1; then
  echo 'SKIPPED: the probes in the library: this build is without (package systemtap-sdt-dev; PROBES=)'
  is 'a build without probes has none' '' "$(elf_list "$build/libaeconn.so")"
else
  expected=$(counts <<<"$listed")
  [[ $made_with != *-DAECONN_RDMA=0* ]] || expected=$(without_rdma <<<"$expected")
  for file in libaeconn.so kv-server; do
    is "$file has them all, with as many arguments" "$expected" "$(elf_list "$build/$file")"
  done
  # Probe sites are plain nops without a semaphore: nothing has to enable them first.
  is 'none has a semaphore' '' "$(readelf -n "$build/libaeconn.so" |
    awk '/Provider: aeconn$/ {ours = 1} ours && /Semaphore:/ {if ($NF !~ /^0x0+$/) print; ours = 0}')"
fi

# Disabled probes generate no code, but are still compiled.
cat >"$work/probe.cc" <<'END'
#include "conn/kit/probes.h"
void place(unsigned long id, const char* text, int one) { AECONN_PROBE(close, id, text, one, 1u); }
END
for probes in -DAECONN_PROBES=0 ''; do
  if $cxx -std=c++20 -O2 -Wall -Wextra -Wshadow -Wconversion -Werror -I. $probes -c \
    -o "$work/probe.o" "$work/probe.cc" 2>"$work/log"; then ok "the header compiles, ${probes:-as it is}"
  else fail "the header compiles, ${probes:-as it is}" "$(cat "$work/log")"; fi
  [ -z "$probes" ] || is 'without probes nothing is left' '' "$(elf_list "$work/probe.o")"
done
total
