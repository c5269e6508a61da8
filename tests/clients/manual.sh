#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The programs' manual pages and completions in bash, against what --help says.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"

options() { grep -oE '(^|[ ,])-{1,2}[a-z0-9][a-z0-9-]*' | grep -oE -- '-{1,2}[a-z0-9-]+' | sort -u; }
complete_as() {  # PROGRAM WORD...: what bash offers for the last word
  bash -c '. "$1" && COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2)) &&
    "$(complete -p "$2" | sed "s/.*-F \([^ ]*\).*/\1/")" && printf "%s\n" "${COMPREPLY[@]}"' - "$build/pages/$1" "$@"
}
for program in kv-server kv-cli conn-perf aeconn-proxy aeconn-doctor; do
  page=$build/pages/$program.1
  is "$program: roff has nothing to say" '' "$(man --warnings -l "$page" 2>&1 >/dev/null)"
  "$build/$program" --help >"$work/help"
  [ $program != conn-perf ] || for each in server client plot; do "$build/$program" $each --help; done >>"$work/help"
  wanted=$(sed -n 's/^  \(-[^ ]*\).*/\1/p' "$work/help" | options)
  is "$program: the page has every option" '' "$(comm -23 <(echo "$wanted") <(MANWIDTH=1000 man -l "$page" | options))"
  is "$program: --write-page is for the build" '' "$(grep -e --write-page "$work/help")"
done
# conn(7) has each option of the tables, with its side, default and values.
page=$build/pages/conn.7
is 'conn(7): roff has nothing to say' '' "$(man --warnings -l "$page" 2>&1 >/dev/null)"
MANWIDTH=1000 man -l "$page" | sed 's/^ *//' >"$work/conn.txt"
"$build/aeconn-doctor" --write-page options >"$work/options"
is 'conn(7): the tables have options of three transports at least' yes \
  "$([ "$(cut -f1 "$work/options" | sort -u | wc -l)" -ge 3 ] && [ "$(wc -l <"$work/options")" -ge 25 ] && echo yes)"
differs() { python3 -B tests/clients/conn_page.py "$work/options" "$1"; }
is 'conn(7): each option of the tables is there, as they say' '' "$(differs "$work/conn.txt")"
sed '0,/Default: 511/s//Default: 512/; 0,/^nodelay$/s//no-delay/; 0,/ (connecting)$/s///' "$work/conn.txt" >"$work/wrong.txt"
is 'conn(7): what is missing or different is noticed' $'tcp backlog\ntcp connect-timeout\ntcp nodelay' "$(differs "$work/wrong.txt")"
is 'completion: options' $'--listen\n--loglevel\n--loops' "$(complete_as kv-server --l | sort)"
is 'completion: subcommands' $'client\nplot\nserver' "$(complete_as conn-perf '' | grep -xE 'server|client|plot' | sort)"
is "completion: a subcommand's options" $'--echo\n--event-loop' "$(complete_as conn-perf server --e | sort)"
touch "$work/cert.pem"
is 'completion: files after an option that takes a value' "$work/cert.pem" "$(complete_as kv-server --tls-cert "$work/ce")"
total
