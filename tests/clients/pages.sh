#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Names of files, tests, tags, targets, options, flags, counters and variables on the pages must
# exist, and docs/options.md must have all options. pages.py describes the checks. First, a page
# with one wrong name of each kind shows that each is detected.
# shellcheck disable=SC2016 # what is in quotes here is in pages
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
command -v python3 >/dev/null || { fail python3 'it is not installed (package python3)'; total; exit; }
pages() { python3 -B tests/clients/pages.py "$@" 2>&1; }

# ---- it can fail --------------------------------------------------------------------------------
# Each line with the expected complaint.
expected=$work/expected page=$work/wrong.md
: >"$expected"
line() {  # TEXT [COMPLAINT]
  printf '%s\n' "$1" >>"$page"
  [ -z "${2-}" ] || echo "$page:$(wc -l <"$page"): $2" >>"$expected"
}
line '# A page'
line 'A [link](nowhere.md).' 'the link leads nowhere: nowhere.md'
line 'A [heading](#nowhere), and [one](#a-page) that is there.' 'the link leads nowhere: #nowhere'
line '`tests/run`, `conn/NAME/type.h`, `bench_*.sh`, `build/kv-server` are there.'
line 'A file: `conn/nowhere.cc`.' 'there is no conn/nowhere.cc'
line 'Some: `tests/nowhere_*.cc`.' 'there is no tests/nowhere_*.cc'
line 'What is included: `adapters/libuv.h`, and not `adapters/nowhere.h`.' 'there is no adapters/nowhere.h'
line 'One without its folder: `nowhere.sh`.' 'no file is called nowhere.sh'
line 'One that is built: `build/no-such`.' 'nothing makes build/no-such'
line 'A line: `conn/url/endpoint.cc` 131.' 'conn/url/endpoint.cc 131: lines move; name the function'
line 'A function: `conn/url/endpoint.cc` parse(), nowhere().' 'conn/url/endpoint.cc has no nowhere()'
line 'A test: "tcp: it is nowhere".' 'no test is called "tcp: it is nowhere"'
line 'A tag: `[tcp]~[nowhere]`.' 'no test has the tag [nowhere]'
line 'A target: `make nowhere`, and not `make test`.' 'the Makefile has no target nowhere'
line 'A variable of it: `make soak NOWHERE=1`.' 'the Makefile knows no NOWHERE='
line 'An option: `nowhere=1`, and not `verify=no`.' 'no transport has an option nowhere'
line 'In a URL: `rdma://10.0.0.1:1?window=1m&nowhere=2`.' 'no transport has an option nowhere'
line 'A flag: `kv-server --listen tcp://*:1 --nowhere`.' 'kv-server has no --nowhere'
line 'A flag of another: `aeconn-proxy --listen unix:x --nowhere`.' 'aeconn-proxy has no --nowhere'
line 'Anybody'"'"'s: `--nowhere-at-all`.' 'nothing in the tree knows --nowhere-at-all'
line 'A variable: AECONN_NOWHERE, and not AECONN_BUILD.' \
  'nothing in the tree knows the variable AECONN_NOWHERE'
line ''
line '```sh'
line 'build/tests/unit-tests "tcp: nowhere*"  # "tcp: *" is there' 'no test is called "tcp: nowhere*"'
line 'make test-long && tests/nowhere' 'there is no tests/nowhere'
line '```'
line ''
line '| what | proven by |'
line '|---|---|'
line '| a | `conformance_io`, `nowhere` |' 'there is no nowhere_test.cc below tests/'
line ''
line '| what | option | counter | test |'
line '|---|---|---|---|'
line '| a | `window` | `nowhere_at_all` | |' 'nothing counts nowhere_at_all'
line '| a | `nowhere` | `refused` | |' 'no transport has an option nowhere'
line '| a | `window` | `refused` | "another subject: nowhere" |' \
  'no test is called "another subject: nowhere"'
said=$(pages "$page")
is 'each wrong name of a page is noticed, at its line, and no right one' '' \
  "$(diff <(sort "$expected") <(grep "^$page" <<<"$said" | sort))"
while read -r kind looked wrong; do
  [ "$kind" = counters ] || is "the page has a wrong name among its $kind" yes \
    "$([ "$wrong" -gt 0 ] && [ "$looked" -gt "$wrong" ] && echo yes)"
done < <(grep -E '^[a-z]+ [0-9]+ [0-9]+$' <<<"$said")

page=$work/options.md
printf '## unix\n\n| option | | default |\n|---|---|---|\n| `mode` | | |\n| `colour` | | |\n' >"$page"
echo '| `backlog` | L | 512 | 1 to 65535 | pending connections; the kernel caps it at `somaxconn` |' >>"$page"
printf '| `send-buffer` | | |\n\n### Tuning\n\n| option | | default |\n|---|---|---|\n| `accept-batch` | | |\n| `max-connections` | | |\n' >>"$page"
said=$(pages "$page")
has 'a wrong cell is noticed' ":7: default of unix's backlog is \"511\", not \"512\"" "$said"
is 'and no right one' 1 "$(grep -c "of unix's backlog" <<<"$said")"
has 'an option that is described and is none is noticed' ":6: unix has no option colour" "$said"
has 'an option that is not described is noticed' ":1: the option connect-timeout of unix is not described" "$said"
has 'a tuning option among the others is noticed' ":8: unix's send-buffer is to be below the heading Tuning" "$said"
has 'another one below Tuning is noticed' ":15: unix's max-connections is to be above the heading Tuning" "$said"
is 'and no right one' '' "$(grep "unix's accept-batch is" <<<"$said")"
is 'one that is both is not' '' "$(grep 'mode of unix' <<<"$said")"

# ---- the pages of this tree ---------------------------------------------------------------------
mapfile -t all < <(find . -name '*.md' -not -path './build/*' -not -path './.git/*' | sed 's|^\./||' | sort)
said=$(pages "${all[@]}")
is 'it has looked at every kind' 11 "$(grep -cE '^[a-z]+ [1-9][0-9]* [0-9]+$' <<<"$said")"
grep -vE '^[a-z]+ [0-9]+ [0-9]+$' <<<"$said"
while read -r kind looked wrong; do
  is "pages: $kind ($looked)" 0 "$wrong"
done < <(grep -E '^[a-z]+ [0-9]+ [0-9]+$' <<<"$said")

# ---- claims of the pages -------------------------------------------------------------------------
claims() { python3 -B tests/clients/claims.py "$@" 2>&1; }
promises=()
for each in "${all[@]}"; do
  case $each in
    docs/*benchmarks* | docs/architecture.md | docs/internals.md | docs/testing.md | docs/faults.md | docs/add-a-transport.md) ;;
    docs/* | README.md | SECURITY.md) promises+=("$each") ;;
  esac
done
page=$work/claims.md
printf 'It never sleeps. It reads 5 at\nmost. It promises this.\n' >"$page"
printf '%s\n  It never sleeps\n    tcp: it is nowhere\n  It reads 5 at most\n  It flies\n    tests/run\n' \
  "$page" >"$work/claims"
said=$(claims "$work/claims" "$page")
has 'a test that is not there is noticed' 'claims:2: there is no test: tcp: it is nowhere' "$said"
has 'a claim without a test is noticed' 'claims:4: nothing proves: It reads 5 at most' "$said"
has 'a claim that no page makes is noticed' 'claims:5: .* does not say: It flies' "$said"
has 'a claim that is not listed is noticed' "claims.md:2: no test is named in .*promises this" "$said"
is 'and nothing else' 'claims 3 4' "$(tail -n 1 <<<"$said")"
said=$(claims tests/claims "${promises[@]}")
grep -v '^claims ' <<<"$said"
has 'what the pages promise is proven by tests that exist' '^claims [1-9][0-9]+ 0$' "$(tail -n 1 <<<"$said")"
total
