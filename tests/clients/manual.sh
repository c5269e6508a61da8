#!/usr/bin/env bash
# The programs' manual pages and completions in bash, against what --help says.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"

options() { grep -oE '(^|[ ,])-{1,2}[a-z0-9][a-z0-9-]*' | grep -oE -- '-{1,2}[a-z0-9-]+' | sort -u; }
complete_as() {  # PROGRAM WORD...: what bash offers for the last word
  bash -c '. "$1" && COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2)) &&
    "$(complete -p "$2" | sed "s/.*-F \([^ ]*\).*/\1/")" && printf "%s\n" "${COMPREPLY[@]}"' - "$build/pages/$1" "$@"
}
for program in kv-server kv-cli conn-perf aeconn-proxy; do
  page=$build/pages/$program.1
  is "$program: roff has nothing to say" '' "$(man --warnings -l "$page" 2>&1 >/dev/null)"
  "$build/$program" --help >"$work/help"
  [ $program != conn-perf ] || for each in server client plot; do "$build/$program" $each --help; done >>"$work/help"
  wanted=$(sed -n 's/^  \(-[^ ]*\).*/\1/p' "$work/help" | options)
  is "$program: the page has every option" '' "$(comm -23 <(echo "$wanted") <(MANWIDTH=1000 man -l "$page" | options))"
  is "$program: --write-page is for the build" '' "$(grep -e --write-page "$work/help")"
done
is 'completion: options' $'--listen\n--loops' "$(complete_as kv-server --l | sort)"
is 'completion: subcommands' $'client\nplot\nserver' "$(complete_as conn-perf '' | grep -xE 'server|client|plot' | sort)"
is "completion: a subcommand's options" $'--echo\n--event-loop' "$(complete_as conn-perf server --e | sort)"
touch "$work/cert.pem"
is 'completion: files after an option that takes a value' "$work/cert.pem" "$(complete_as kv-server --tls-cert "$work/ce")"
total
