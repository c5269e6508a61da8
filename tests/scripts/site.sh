#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `make site`: every public name is documented, or there is no site, and a page says a name as a
# program writes it. `make check-site` looks at all of it in a browser.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
command -v doxygen >/dev/null || { echo 'SKIPPED: make site: doxygen is not installed'; total; exit; }
said=$(make --no-print-directory -j1 site 2>&1)
is 'make site: every public name is documented' '' "$([ $? = 0 ] || tail -n 5 <<<"$said")"
is 'it says where it is' build/site/index.html "$(tail -n 1 <<<"$said")"
is 'a class has the name that programs write' 1 "$(ls build/site/classconn_1_1Connection.html | wc -l)"
is 'what the linker is told is in no name' '' "$(cd build/site && grep -l 'aeconn_0_2\|AECONN_A[BP]I' class*.html struct*.html)"
total
