#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `make site`: fails unless each public name is documented, and each installed header is on the site
# or listed with a reason; a page writes names as a program does. `make check-site` checks the site
# in a browser.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
command -v doxygen >/dev/null || { echo 'SKIPPED: make site: doxygen is not installed'; total; exit; }
said=$(make --no-print-directory -j1 site 2>&1)
is 'make site: every public name is documented' '' "$([ $? = 0 ] || tail -n 5 <<<"$said")"
is 'it says where it is' build/site/index.html "$(tail -n 1 <<<"$said")"
is 'a class has the name that programs write' 1 "$(ls build/site/classconn_1_1Connection.html | wc -l)"
is 'what the linker is told is in no name' '' "$(cd build/site && grep -l 'aeconn_[0-9]*_[0-9]\|AECONN_A[BP]I' class*.html struct*.html)"

# --- headers for authors of transports ------------------------------------------------------------
group=build/site/group__authors.html
without=''
for header in $(make --no-print-directory -s print-author-headers); do grep -qF ">${header##*/}</a>" "$group" || without+=" $header"; done
is 'what an author of a transport includes is a group of its own' '' "$without"
is 'the guide links to it' 1 "$(grep -c 'href="group__authors.html"' build/site/page_docs_add-a-transport.html)"
is 'the tree leads to the group, not to pages without it' '' "$(grep -l '_8h.html#g' build/site/*_8h.js)"
is 'what he implements is shown: protected' 1 "$(grep -c '<b>readable</b>' build/site/classconn_1_1QueuedCarrier.html)"
is 'there are such pages' yes "$(ls build/site/*_8h.js build/site/classconn_1_1tcp_*.html >"$work/pages" 2>&1 && echo yes)"
is 'and elsewhere it is not' '' "$(grep -l 'is_family' build/site/classconn_1_1tcp_*.html)"

# --- a header that is not listed ------------------------------------------------------------------
headers() { python3 -B tools/site/headers.py "$1" build/site "${@:2}" 2>&1; }
printf 'ae/core/*.h | inside\n' >"$work/inner"
is 'one on the site, one in the list' '' "$(headers "$work/inner" conn/redial.h ae/core/idle_time.h)"
is 'one on neither' 'conn/new.h: not on the site, for want of a comment at its top?' \
  "$(headers "$work/inner" conn/new.h ae/core/idle_time.h)"
printf 'ae/core/*.h |\n' >"$work/inner"
is 'one without a reason' 'ae/core/*.h: no reason why it is not on the site' "$(headers "$work/inner" ae/core/idle_time.h)"
printf 'conn/gone.h | inside\n' >"$work/inner"
is 'a row about none' 'conn/gone.h: no such header is installed' "$(headers "$work/inner" conn/redial.h)"
printf 'conn/redial.h | inside\n' >"$work/inner"
is 'one on both' 'conn/redial.h: on the site, and tools/site/inner says that it is not' \
  "$(headers "$work/inner" conn/redial.h)"
total
