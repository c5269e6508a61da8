#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The programs' manual pages and bash completions, compared with --help.
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
sed '0,/^Tuning$/s//Others/' "$work/conn.txt" >"$work/wrong.txt"
is 'conn(7): a tuning option that is not shown apart is noticed' \
  "$(awk -F'\t' '$1 == "tcp" && $7 == "tuning" {print $1, $2}' "$work/options" | sort)" "$(differs "$work/wrong.txt" | sort)"
is 'completion: options' $'--listen\n--loglevel\n--loops' "$(complete_as kv-server --l | sort)"
is 'completion: subcommands' $'client\nplot\nserver' "$(complete_as conn-perf '' | sort)"
is "completion: a subcommand's options" $'--echo\n--event-loop' "$(complete_as conn-perf server --e | sort)"

# ---- words: values in the parsers' tables are offered, and are accepted --------------------------
tab=$'\t'
# For each line of tab-separated words, the completions of the last word, separated by commas and as
# the program would get them. COMPLETION replaces the program's completion script.
offered() {  # PROGRAM [COMPLETION]
  (cd "$work/place" && bash -c '. "$2" && function=$(complete -p "$1" | sed "s/.*-F \([^ ]*\).*/\1/")
    while IFS= read -r line; do
      mapfile -td "	" COMP_WORDS < <(printf "%s\t" "$line")
      COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
      "$function"
      eval "words=(${COMPREPLY[*]})"
      (IFS=, && echo "${words[*]}")
    done' - "$1" "${2-$build/pages/$1}")
}
place() { sed -E 's/([:=]+)/\t\1\t/g' <<<"$1"; }  # URL: its words, as bash splits it
mkdir -p "$work/place/my folder"
touch "$work/place/my cert.pem" "$work/place/my folder/key.pem"
files='my cert.pem,my folder/'
# The completions of an empty word, by the kind of value: lines KIND TAB COMPLETIONS.
kinds="@file$tab$files
@files$tab$files
@folder${tab}my folder/
@spin$tab$(sed -n "s/^spin spin B //p" "$build/pages/kv-server")
@transport:tcp,tls${tab}tcp,tls
-$tab"
as_offered() { awk -F'\t' 'NR == FNR {to[$1] = $2; next} {print ($1 in to) ? to[$1] : $1}' <(echo "$kinds") -; }
transports=$("$build/kv-server" --version | sed -n 's/^transports: //p')
kinds+="
@listen$tab${transports// /://,}://
@connect$tab${transports// /://,}://"

# The options in a program's --write-page values whose completions differ from its table.
wrongly_offered() {  # PROGRAM [COMPLETION]
  "$build/$1" --write-page values | grep -v "$tab$tab-\$" >"$work/values"
  [ -s "$work/values" ] || echo 'no option takes a value'
  # COMMAND TAB FLAG, both may be empty: the words of a line that ends there.
  paste <(sed -E 's/\t[^\t]*$//' "$work/values") <(cut -f3 "$work/values" | as_offered) \
    <(sed -E "s/\t[^\t]*\$//; s/^/$1\t/; s/\t+/\t/g; s/([^\t])\$/\1\t/" "$work/values" | offered "$@") |
    awk -F'\t' '$3 != $4'
}
for program in kv-server kv-cli conn-perf aeconn-proxy aeconn-doctor; do
  is "$program: completion offers all that its tables have" '' "$(wrongly_offered $program)"
done
sed 's/debug,verbose,notice/debug,notice/' "$build/pages/kv-server" >"$work/short"
has 'a word that is not offered is noticed' 'loglevel' "$(wrongly_offered kv-server "$work/short")"

# Each word must be accepted: the only error is the unknown transport nowhere.
says() { timeout 20 "$@" 2>&1 </dev/null | tail -n 1; }
try_word() {  # PROGRAM COMMAND FLAG WORD
  case $1-$2 in
    kv-server-) says "$build/$1" --listen nowhere://x "$3" "$4" ;;
    aeconn-proxy-) says "$build/$1" --listen nowhere://x --connect tcp://127.0.0.1:1 "$3" "$4" ;;
    conn-perf-server) says "$build/$1" server --listen nowhere://x "$3" "$4" ;;
    conn-perf-client) says "$build/$1" client nowhere://x "$3" "$4" ;;
    *) echo "nobody knows how to try $*" ;;
  esac
}
tried=0
for program in kv-server kv-cli conn-perf aeconn-proxy aeconn-doctor; do
  while IFS=$tab read -r command flag value; do
    command=${command//-none-/}
    case $value in
      -|@file|@files|@folder|@listen|@connect) continue ;;
      @*) value=$(as_offered <<<"$value") ;;
    esac
    IFS=, read -ra all <<<"$value"
    for word in "${all[@]}"; do
      tried=$((tried + 1))
      said=$(try_word $program "$command" "$flag" "$word")
      # That option also needs CA certificates.
      [[ $flag == --tls-auth-clients && $said == *'say whose certificates count'* ]] ||
        [[ $said == *nowhere* ]] || fail "$program $command takes $flag $word" "$said"
    done
    [ "$flag" != --activated ] || continue  # checked only if there are sockets
    said=$(try_word $program "$command" "$flag" nonsense)
    [[ $said != *nowhere* ]] || fail "$program $command refuses $flag nonsense" "$said"
  done < <("$build/$program" --write-page values | sed 's/^\t/-none-\t/')
done
is 'words that programs took' yes "$([ $tried -ge 30 ] && echo yes)"

# ---- options of URLs -----------------------------------------------------------------------------
names() {  # SECTION SIDE: of the table
  awk -F'\t' -v section="$1" -v other="$2" '$1 == section && $3 != other {print $2 "="}' "$work/options" | sort -u
}
offers() { printf '%s\t%s\t%s\n' "$1" "$2" "$(place "$3")" | offered "$1" | tr , '\n' | sed 's/.*[?&]//' | sort; }  # PROGRAM FLAG URL
for scheme in $transports; do
  section=${scheme%%+*} below=${scheme#*+}
  [ "$scheme" != tls ] || below=tcp
  is "$scheme: names of a listener's options" "$( (names "$section" C; names "$below" C) | sort -u)" \
    "$(offers kv-server --listen "$scheme://x?")"
  is "$scheme: names of the connecting side's" "$( (names "$section" L; names "$below" L) | sort -u)" \
    "$(offers kv-cli -u "$scheme://x?")"
done
is 'a list of schemes has the options of all' "$( (names tcp L; names unix L; names 'Lists of schemes' L) | sort -u)" \
  "$(offers kv-cli -u 'tcp|unix://x?')"
is 'an option that was given is not offered again' '' "$(offers kv-cli -u 'tcp://x?linger=1s\&nodelay=no\&' | grep -xE 'linger=|nodelay=')"
# Each value must be offered as in the table; aeconn-doctor, which checks all URLs first, must
# accept it.
urls=()
while IFS=$'\037' read -r section name side _ _ _ _ value; do
  scheme=$section program=kv-server flag=--listen
  [ "$section" != 'Lists of schemes' ] || scheme='tcp|unix'
  [ "$side" != C ] || program=kv-cli flag=-u
  wanted=$(as_offered <<<"$value")
  got=$(printf '%s\t%s\t%s\n' $program $flag "$(place "$scheme://x?$name=")" | offered $program)
  [ "$wanted" = "$got" ] || fail "$scheme: what $name takes is offered" "expected '$wanted', got '$got'"
  [[ $value != [-@]* ]] || continue
  IFS=, read -ra all <<<"$value"
  more='' at=127.0.0.1:0
  [[ $scheme != @(shm|unix) ]] || at=$work/socket
  [ "$name" != auth-clients ] || more='&ca-dir=/'
  [ "$name" != crl-check ] || more='&crl=/'
  for word in "${all[@]}"; do urls+=(--serve "$scheme://$at?$name=$word$more"); done
done < <(tr "$tab" "\037" <"$work/options")
has 'the doctor takes each word in a URL' nowhere "$(says "$build/aeconn-doctor" "${urls[@]}" --serve nowhere://x)"
has 'and refuses others' 'nodelay' "$(says "$build/aeconn-doctor" --serve 'tcp://127.0.0.1:0?nodelay=maybe' --serve nowhere://x)"
is 'there are such words' yes "$([ ${#urls[@]} -ge 40 ] && echo yes)"

# ---- typed, in a bash with a terminal ------------------------------------------------------------
# Lines TYPED TAB COMPLETED; TAB is pressed after the typed text.
cat >"$work/typed" <<'END'
kv-server --logl	kv-server --loglevel 
kv-server --loglevel no	kv-server --loglevel notice 
kv-server --loglevel=no	kv-server --loglevel=notice 
kv-server --tls-cert my	kv-server --tls-cert my\ 
kv-server --tls-cert my\ c	kv-server --tls-cert my\ cert.pem 
kv-server --tls-cert "my c	kv-server --tls-cert "my cert.pem" 
kv-server --tls-cert=my\ c	kv-server --tls-cert=my\ cert.pem 
kv-server --tls-cert a.pem,my\ c	kv-server --tls-cert a.pem,my\ cert.pem 
kv-server --tls-key my\ folder/k	kv-server --tls-key my\ folder/key.pem 
kv-server --tls-ca-dir m	kv-server --tls-ca-dir my\ folder/
kv-server --listen tc	kv-server --listen tcp://
kv-server --listen tcp://localhost:1?nod	kv-server --listen tcp://localhost:1?nodelay=
kv-server --listen tcp://localhost:1?nodelay=y	kv-server --listen tcp://localhost:1?nodelay=yes
kv-server --listen tcp://localhost:1?nodelay=yes\&keepa	kv-server --listen tcp://localhost:1?nodelay=yes\&keepalive=
kv-server --listen unix://my\ c	kv-server --listen unix://my\ cert.pem 
kv-cli -u 'tcp|uni	kv-cli -u 'tcp|unix://'
conn-perf client tcp://localhost:1?spread=le	conn-perf client tcp://localhost:1?spread=least
conn-perf server --spin al	conn-perf server --spin always
conn-perf server --spin auto\&spin-m	conn-perf server --spin auto\&spin-max=
conn-perf pl	conn-perf plot 
conn-perf plot my\ c	conn-perf plot my\ cert.pem 
aeconn-proxy --activated tc	aeconn-proxy --activated tcp 
aeconn-proxy --activated tcp?nod	aeconn-proxy --activated tcp?nodelay=
END
if [[ " $transports " == *' tls '* ]]; then cat >>"$work/typed" <<'END'; fi
kv-server --listen tls://localhost:1?cert=my\ c	kv-server --listen tls://localhost:1?cert=my\ cert.pem
kv-server --listen 'tls://localhost:1?nodelay=no&cert=my c	kv-server --listen 'tls://localhost:1?nodelay=no&cert=my cert.pem'
kv-cli -u "tls://localhost:1?verify=ch	kv-cli -u "tls://localhost:1?verify=chain"
kv-server --tls-auth-clients opt	kv-server --tls-auth-clients optional 
END
# Characters with a meaning in the shell, bare and in either kind of quotes.
touch "$work/place/"{'d$HOME','e`id`','s'"'"'q','q"d','b\b','g*g'}
cat >>"$work/typed" <<'END'
kv-server --tls-cert d	kv-server --tls-cert d\$HOME 
kv-server --tls-cert "d	kv-server --tls-cert "d\$HOME" 
kv-server --tls-cert 'd	kv-server --tls-cert 'd$HOME' 
kv-server --tls-cert e	kv-server --tls-cert e\`id\` 
kv-server --tls-cert "e	kv-server --tls-cert "e\`id\`" 
kv-server --tls-cert s	kv-server --tls-cert s\'q 
kv-server --tls-cert 's	kv-server --tls-cert 's'\''q' 
kv-server --tls-cert "q	kv-server --tls-cert "q\"d" 
kv-server --tls-cert b	kv-server --tls-cert b\\b 
kv-server --tls-cert "b	kv-server --tls-cert "b\\b" 
kv-server --tls-cert g\*	kv-server --tls-cert g\*g 
kv-server --tls-cert "my folder"/k	kv-server --tls-cert "my folder"/key.pem 
kv-server --tls-cert "my cert.pem",my\ c	kv-server --tls-cert "my cert.pem",my\ cert.pem 
kv-server --tls-cert ~/my\ c	kv-server --tls-cert ~/my\ cert.pem 
END
export HOME=$work/place
cut -f1 "$work/typed" | python3 -B tests/clients/typed.py "$work/place" "$build"/pages/{kv-server,kv-cli,conn-perf,aeconn-proxy} >"$work/completed" 2>&1
is 'what is typed becomes what is wanted' '' "$(diff <(cut -f2 "$work/typed") "$work/completed")"
total
