#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kv-server and kv-cli over TLS, tested with redis-cli, s_client, sslscan and, with AECONN_TESTSSL=yes,
# testssl; for each refusal the messages of both sides.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
# shellcheck source=tests/clients/testssl_findings
. tests/clients/testssl_findings
if "$kv_server" --listen tls://127.0.0.1:0 2>&1 | grep 'tls is not available'; then
  echo 'No test of TLS: this kv-server was built without it.'
  total; exit
fi
for program in openssl:openssl redis-cli:redis-tools redis-benchmark:redis-tools; do
  command -v ${program%:*} >/dev/null && continue
  fail "${program%:*}" "it is not installed (package ${program#*:})"
  total; exit
done
cd "$work" || exit 1

# ---- certificates -------------------------------------------------------------------------------
key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
authority() { openssl req -x509 "${key[@]}" -keyout "$1.key" -out "$1.pem" -subj "/CN=$2" -days 90; }  # FILE NAME
sign() { openssl ca -batch -notext -config ca.cnf -cert "$1.pem" -keyfile "$1.key" "${@:2}"; }  # CA ARGUMENTS...
leaf() {  # FILE NAMES [CA [ARGUMENTS OF OPENSSL CA...]]: its subject is the file's name
  openssl req "${key[@]}" -keyout "$1.key" -out "$1.csr" -subj "/CN=$1" -addext "subjectAltName=$2" &&
    sign "${3-ca}" -in "$1.csr" -out "$1.pem" "${@:4}"
}
certify() {
  local here=DNS:localhost,IP:127.0.0.1
  cat >ca.cnf <<'END'
[ca]
default_ca = settings
[settings]
database = index.txt
new_certs_dir = .
rand_serial = yes
default_md = sha256
default_days = 90
default_crl_days = 30
unique_subject = no
policy = any_name
copy_extensions = copy
x509_extensions = leaf
[any_name]
commonName = supplied
[leaf]
basicConstraints = CA:FALSE
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
keyUsage = digitalSignature
extendedKeyUsage = serverAuth,clientAuth
END
  : >index.txt
  authority ca 'CA of the tests' && authority other-ca 'Another CA' &&
    leaf server $here && leaf renewed $here && leaf elsewhere DNS:elsewhere.test &&
    leaf client DNS:client.test && leaf stranger DNS:client.test other-ca && leaf revoked $here &&
    leaf expired $here ca -startdate 20200101000000Z -enddate 20200201000000Z &&
    leaf early $here ca -startdate 20450101000000Z -enddate 20460101000000Z &&
    sign ca -revoke revoked.pem && sign ca -gencrl -out crl.pem &&
    openssl req -x509 "${key[@]}" -keyout self.key -out self.pem -subj /CN=self \
      -addext subjectAltName=$here -days 90 &&
    openssl pkey -in server.key -aes256 -passout pass:sesame -out locked.key
}
certify >certify.log 2>&1 || { fail 'certificates are made' "$(tail -n 5 certify.log)"; total; exit; }
serial() { openssl x509 -noout -serial -in "$1"; }

# ---- servers and clients ------------------------------------------------------------------------
# Starts a server on tls; sets `port`, the port of its first URL.
tls() {  # CERTIFICATE ARGUMENTS OF KV-SERVER...
  start --listen tls://127.0.0.1:0 --tls-cert "$1.pem" --tls-key "$1.key" "${@:2}" || return
  port=${urls[0]##*:}
}
r() { timeout 10 redis-cli -p "$port" --tls --cacert ca.pem "$@" 2>&1; }
k() { timeout 10 "$kv_cli" -u "tls://localhost:$port" --cacert ca.pem "$@" 2>&1; }
s() { timeout 10 openssl s_client -connect "localhost:$port" -CAfile ca.pem "$@" 2>&1 | tr -d '\0'; }
# s_client until the server closes, which QUIT makes it do.
speak() { printf 'SET spoken 1\r\nGET spoken\r\nQUIT\r\n' | s -ign_eof "$@"; }
shown() { s "$@" </dev/null | openssl x509 -noout -serial; }  # the certificate that is served
refused='^kv-server: refused: TLS handshake with 127\.0\.0\.1:[0-9]+: '

# both NAME SERVER-REGEX CLIENT-REGEX COMMAND...: checks both sides' messages about a refusal
both() {
  mark
  has "$1: the client" "$3" "$("${@:4}")"
  said "$1: kv-server" "$refused$2\$" "${connections-1}"
}
# The same for kv-cli: one line, status 1.
both_kv() {  # NAME SERVER-REGEX KV-CLI-REGEX ARGUMENTS...
  mark
  refuses "$1: kv-cli" "^kv-cli: .*$3\$" "$kv_cli" "${@:4}"
  said "$1: kv-server" "$refused$2\$"
}

# ---- testssl, in the background: it takes minutes -----------------------------------------------
# Omitted: -h, -B and -T, which are about HTTP; -c, simulated browsers; -g, bugs of other
# implementations; -f, forward secrecy, which all ciphers listed by sslscan below have.
scanner=''
for program in testssl testssl.sh; do
  command -v $program >/dev/null && scanner=$program && break
done
if [ "${AECONN_TESTSSL-}" != yes ]; then
  echo 'Not run here but by `make test-long`: testssl.'
elif [ -z "$scanner" ]; then
  fail testssl 'it is not installed (package testssl.sh)'
elif tls server; then
  timeout -k 5 400 "$scanner" --quiet --color 0 --warnings off --nodns none --ip 127.0.0.1 --add-ca "$work/ca.pem" \
    --csvfile "$work/testssl.csv" -p -s -P -S -H -I -BB -R -C -O -Z -W -A -L -F -J -D -4 "localhost:$port" >testssl.out 2>&1 </dev/null &
  scan=$! scanned=$server
fi

# ---- clients that are accepted -------------------------------------------------------------------
tls server --listen "tls+unix://$work/kv.sock" --listen tcp://127.0.0.1:0 || { total; exit; }
plain=${urls[2]##*:}
is 'redis-cli: PING, SET, GET' $'PONG\nOK\nhello world' "$(r PING; r SET greeting 'hello world'; r GET greeting)"
is 'redis-cli: a Unix socket' PONG "$(timeout 10 redis-cli -s kv.sock --tls --cacert ca.pem PING 2>&1)"
is 'redis-cli: 3 MB there and back' ok "$(
  head -c 3000000 /dev/urandom >big
  r -x SET large <big >/dev/null
  r GET large | head -c 3000000 >back
  cmp big back && echo ok)"
has 'redis-cli: CLIENT LIST names the transport' 'transport=tls path=tls_TLSv1.3_' "$(r CLIENT LIST)"
for depth in 1 16; do
  timeout 30 redis-benchmark -p "$port" --tls --cacert ca.pem -t set,get -n 2000 -c 20 -P $depth -q >out 2>err
  is "redis-benchmark -P $depth: status, errors" '0 ' "$? $(cat err)"
  has "redis-benchmark -P $depth" $'SET: [0-9.]+ requests per second\nGET: [0-9.]+ requests per second' "$(cat out)"
done
for url in "tls://localhost:$port" "tls://127.0.0.1:$port" "tls+unix://$work/kv.sock"; do
  is "kv-cli: ${url%[:/]*}" $'OK\nhello\n-' \
    "$(printf 'SET greeting hello\nGET greeting\n' | timeout 10 "$kv_cli" -u "$url" --cacert ca.pem 2>&1; echo -)"
done
is 'kv-cli --insecure' PONG "$("$kv_cli" -u "tls://localhost:$port" --insecure PING 2>&1)"
is 'kv-cli: ca-dir=' PONG "$(mkdir cas; cp ca.pem cas; openssl rehash cas >/dev/null 2>&1
  "$kv_cli" -u "tls://localhost:$port?ca-dir=cas" PING 2>&1)"
is 'nobody was refused' '' "$(grep -v '^listening' "$log")"

# ---- clients that do not use TLS -----------------------------------------------------------------
# over COMMAND...: its output, and whether it took less than a second
over() { timeout 1 "$@" 2>&1; [ $? != 124 ] && echo 'in a second'; }
raw() {  # TEXT: what the TLS port answers
  local answer
  printf '%b' "$1" >text
  exec 7<>"/dev/tcp/127.0.0.1/$port"
  cat text >&7  # in one piece, unlike the shell's printf
  answer=$(over od -An -tx1 <&7)
  exec 7>&-
  echo "$answer"
}
not_tls=': the peer does not speak TLS here'
alert='^ 15 03 01 00 02 02 0a
in a second$'
both 'PING in the clear to tls' "wrong version number$not_tls" "$alert" raw 'PING\r\n'
both 'RESP in the clear to tls' "wrong version number$not_tls" "$alert" raw "*1\r\n\$4\r\nPING\r\n"
both 'HTTP to tls' "http request$not_tls" "$alert" raw 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'
both 'redis-cli in the clear to tls' "wrong version number$not_tls" '^Error: Protocol error, got ".x15" as reply type byte
in a second$' over redis-cli -p "$port" PING
both_kv 'kv-cli in the clear to tls' "wrong version number$not_tls" 'answered with TLS: use tls://' \
  -u "tcp://127.0.0.1:$port" PING
connections=2 both 'redis-cli, unknown CA (it tries twice)' 'the peer answered with the alert "unknown CA"' \
  '^Could not connect to Redis at 127.0.0.1:[0-9]+: SSL_connect failed: certificate verify failed$' \
  r --cacert other-ca.pem PING

speaks_tls='^kv-server: tcp 127\.0\.0\.1:[0-9]+ speaks TLS; this port is plain: use a tls:// one$'
mark
has 'TLS to tcp: redis-cli' '^Could not connect to Redis at 127.0.0.1:[0-9]+: SSL_connect failed: unexpected eof while reading
in a second$' "$(over redis-cli -p "$plain" --tls --cacert ca.pem PING)"
said 'TLS to tcp: kv-server about redis-cli, which tries twice' "$speaks_tls" 2
mark
has 'TLS to tcp: s_client' 'unexpected eof while reading
no peer certificate available
in a second$' "$(over openssl s_client -connect "localhost:$plain" </dev/null)"
said 'TLS to tcp: kv-server about s_client' "$speaks_tls"
mark
refuses 'TLS to tcp: kv-cli' \
  '^kv-cli: Could not connect to tls://localhost:[0-9]+: TLS handshake with 127.0.0.1:[0-9]+: the peer closed the connection in the middle of it$' \
  timeout 1 "$kv_cli" -u "tls://localhost:$plain" --cacert ca.pem PING
said 'TLS to tcp: kv-server about kv-cli' "$speaks_tls"

while [ "$EPOCHSECONDS" = "${marked_at%% *}" ]; do sleep 0.05; done
mark
# Without a process for each, so that all forty arrive within a second.
for ((i = 0; i < 40; i++)); do
  exec 7<>"/dev/tcp/127.0.0.1/$port"
  echo PING >&7
  exec 7>&-
done
told() {
  awk -v from="$marked" 'NR > from && / refused: /{n++} NR > from && / more lines like these$/{n += $2} END{exit n != 40}' "$log"
}
if soon told; then ok 'forty refusals are told, or counted'; else
  fail 'forty refusals are told, or counted' "$(tail -n "+$((marked + 1))" "$log" | cut -c1-60)"
fi
is 'forty refusals: fewer lines' yes "$([ $(($(wc -l <"$log") - marked)) -lt 35 ] && echo yes)"
is 'the others go on' PONG "$(k PING)"
stop "$server"

# ---- versions, ALPN, SNI, resumption ------------------------------------------------------------
start --listen tls://127.0.0.1:0 --tls-cert server.pem,elsewhere.pem --tls-key server.key,elsewhere.key \
  --tls-alpn redis,resp || { total; exit; }
port=${urls[0]##*:}
declare -A cipher=([1_2]=ECDHE-ECDSA-AES256-GCM-SHA384 [1_3]=TLS_AES_128_GCM_SHA256)
for v in 1_2 1_3; do
  shown_as="TLSv${v/_/.}, Cipher is ${cipher[$v]}"
  has "s_client -tls$v" "New, $shown_as
Verified peername: localhost
Verify return code: 0 .ok.
Compression: NONE
ALPN protocol: redis
subject=CN = server
.OK.*1.*closed" "$(speak -tls$v -verify_hostname localhost -alpn nonsense,resp,redis -sess_out session$v)"
  has "s_client -tls$v -sess_in" "Reused, $shown_as
.OK.*1.*closed" "$(speak -tls$v -sess_in session$v -sess_out session$v)"
  has "s_client -tls$v: a session of another name" "New, $shown_as
subject=CN = elsewhere" "$(speak -tls$v -servername elsewhere.test -sess_in session$v)"
  both "s_client -tls$v: no common ALPN" 'no application protocol' 'alert no application protocol' s -tls$v -alpn nonsense
done
is 's_client -reconnect' 'New Reused Reused Reused Reused Reused ' \
  "$(s -tls1_2 -reconnect </dev/null | grep -Eo '^(New|Reused), TLSv1.2' | sed 's/,.*//' | tr '\n' ' ')"
for name in localhost:server elsewhere.test:elsewhere nobody.test:server; do
  is "SNI ${name%:*}" "$(serial "${name#*:}.pem")" "$(shown -servername "${name%:*}")"
done
is 'no SNI' "$(serial server.pem)" "$(shown -noservername)"
both 's_client -tls1_1' 'unsupported protocol' 'alert protocol version' s -tls1_1 -cipher DEFAULT@SECLEVEL=0
both 's_client, only weak ciphers' 'no shared cipher' 'alert handshake failure' \
  s -tls1_2 -cipher 'ECDHE-ECDSA-AES128-SHA:AES128-GCM-SHA256'
both 's_client, a name that does not fit' 'the peer answered with the alert "bad certificate"' 'hostname mismatch' \
  s -verify_return_error -verify_hostname wrong.test

# Renegotiation: OpenSSL's client ends when it is refused; the server must continue.
: >screen
shows() { soon grep -q "$1" screen; }
{
  printf 'SET again 1\r\n'; shows '^.OK'
  echo R; shows 'no renegotiation'
} | timeout 10 openssl s_client -connect "localhost:$port" -CAfile ca.pem -tls1_2 >screen 2>&1
has 'renegotiation is refused' $'RENEGOTIATING\nno renegotiation' "$(cat screen)"
is 'renegotiation: the server goes on' '1 1' "$(k GET again) $(k EXISTS again)"

# A client sends early data only to a server that has allowed it before: with a session of another
# server the client tries, and kv-server must skip the early data.
mkfifo other.in
exec 8<>other.in
: >other.out
openssl s_server -accept 0 -cert server.pem -key server.key -tls1_3 -early_data <other.in >other.out 2>&1 &
other=$!
servers+=("$other")
soon grep -q '^ACCEPT .*:' other.out
other_port=$(sed -n 's/^ACCEPT .*:\([0-9]*\)$/\1/p' other.out)
soon test -s ticket |
  timeout 10 openssl s_client -connect "localhost:$other_port" -tls1_3 -sess_out ticket >screen 2>&1
kill "$other"; wait "$other" 2>/dev/null
exec 8>&-
printf 'SET early 1\r\n' >early.data
has 'early data is refused, and passed over' 'Early data was rejected
New, TLSv1.3
.-1.*.OK.*closed' "$(printf 'GET early\r\nQUIT\r\n' | s -ign_eof -tls1_3 -sess_in ticket -early_data early.data)"
speak -tls1_3 -sess_out ticket >/dev/null
has 'early data is not offered' $'Reused, TLSv1.3\nMax Early Data: 0\nEarly data was not sent' \
  "$(speak -tls1_3 -sess_in ticket -early_data early.data)"
is 'early data: nothing was executed' '' "$(k GET early)"
stop "$server"
if start --listen 'tls://127.0.0.1:0?cert=server.pem&key=server.key&min-version=1.3&resumption=no'; then
  port=${urls[0]##*:}
  both 'min-version=1.3' 'unsupported protocol' 'alert protocol version' s -tls1_2
  is 'resumption=no' '' "$(s -tls1_3 -ign_eof -sess_out none <<<QUIT | grep 'New Session Ticket'; cat none 2>/dev/null)"
  stop "$server"
fi

# ---- certificates of clients --------------------------------------------------------------------
client() { r --cert "$1.pem" --key "$1.key" PING; }  # redis-cli with this certificate
# refused_client NAME CERTIFICATE SERVER-REGEX ALERT: redis-cli and kv-cli connect with it
refused_client() {
  local own=()
  [ -z "$2" ] || own=(--cert "$2.pem" --key "$2.key")
  both "a client's certificate, $1" "$3" '^Error: Server closed the connection$' r "${own[@]}" PING
  both_kv "a client's certificate, $1" "$3" \
    "The server at tls://localhost:$port closed the connection: read from 127.0.0.1:$port: the peer answered with the alert \"$4\"" \
    -u "tls://localhost:$port" --cacert ca.pem "${own[@]}" PING
}
if tls server --tls-ca ca.pem --tls-crl crl.pem --tls-auth-clients yes; then
  is "a client's certificate, good" 'PONG PONG' "$(client client) $(k --cert client.pem --key client.key PING)"
  has "a client's certificate, good: redis-benchmark" 'PING_INLINE: [0-9.]+ requests' \
    "$(timeout 20 redis-benchmark -p "$port" --tls --cacert ca.pem --cert client.pem --key client.key -t ping -n 100 -c 5 -q 2>&1)"
  has "a client's certificate, good: s_client" 'Acceptable client certificate CA names
CN = CA of the tests
Verify return code: 0 .ok.
.OK.*1.*closed' "$(speak -cert client.pem -key client.key)"
  refused_client none '' 'peer did not return a certificate' 'certificate required'
  both 'none, under TLS 1.2' 'peer did not return a certificate' 'alert handshake failure' s -tls1_2
  both 'none, under TLS 1.3' 'peer did not return a certificate' 'alert number 116' s -tls1_3 -ign_eof
  whose="the peer's certificate"
  refused_client 'of another CA' stranger "$whose \"CN=stranger\": unable to get local issuer certificate" 'unknown CA'
  refused_client 'self-signed' self "$whose \"CN=self\": self-signed certificate" 'unknown CA'
  refused_client revoked revoked "$whose \"CN=revoked\": certificate revoked" 'certificate revoked'
  refused_client expired expired "$whose \"CN=expired\": certificate has expired" 'certificate expired'
  refused_client 'not yet valid' early "$whose \"CN=early\": certificate is not yet valid" 'bad certificate'
  refuses 'kv-cli: the key of another certificate' '^kv-cli: the key server.key does not belong to the certificate client.pem$' \
    "$kv_cli" -u "tls://localhost:$port" --cacert ca.pem --cert client.pem --key server.key PING
  is 'the good one still is' PONG "$(client client)"
  stop "$server"
fi
if tls server --tls-ca ca.pem; then
  both '--tls-ca alone asks for certificates' 'peer did not return a certificate' '^Error: Server closed the connection$' r PING
  is '--tls-ca alone' PONG "$(client client)"
  is 'without --tls-crl' PONG "$(client revoked)"
  stop "$server"
fi
if tls server --tls-ca ca.pem --tls-auth-clients optional; then
  is '--tls-auth-clients optional' 'PONG PONG' "$(r PING) $(client client)"
  both '--tls-auth-clients optional, of another CA' "$whose \"CN=stranger\": unable to get local issuer certificate" \
    '^Error: Server closed the connection$' client stranger
  stop "$server"
fi

# ---- servers that kv-cli does not accept ---------------------------------------------------------
# not_taken NAME ALERT KV-CLI-REGEX CERTIFICATE OPTIONS [ARGUMENTS...]
not_taken() {
  tls "$4" || return
  both_kv "kv-cli, $1" "the peer answered with the alert \"$2\"" \
    "Could not connect to tls://localhost:${port}[^ ]*: TLS handshake with 127.0.0.1:$port: the peer's certificate \"CN=$4\": $3" \
    -u "tls://localhost:$port$5" "${@:6}" PING
  stop "$server"
}
not_taken 'wrong host' 'bad certificate' 'hostname mismatch \(wanted localhost; it names DNS:elsewhere\.test\)' elsewhere '?ca=ca.pem'
not_taken 'wrong --sni' 'bad certificate' 'hostname mismatch \(wanted wrong\.test; it names DNS:localhost, IP:127\.0\.0\.1\)' \
  server '' --cacert ca.pem --sni wrong.test
not_taken 'expired' 'certificate expired' 'certificate has expired' expired '?ca=ca.pem'
not_taken 'not yet valid' 'bad certificate' 'certificate is not yet valid' early '?ca=ca.pem'
not_taken 'unknown CA' 'unknown CA' 'unable to get local issuer certificate' server '?ca=other-ca.pem'
not_taken "the system's CAs" 'unknown CA' 'unable to get local issuer certificate' server ''
not_taken 'self-signed' 'unknown CA' 'self-signed certificate' self '?ca=ca.pem'
not_taken 'revoked' 'certificate revoked' 'certificate revoked' revoked '?ca=ca.pem&crl=crl.pem'
if tls elsewhere; then
  is 'kv-cli --sni' PONG "$(k --sni elsewhere.test PING)"
  is 'kv-cli: verify=chain' PONG "$("$kv_cli" -u "tls://localhost:$port?ca=ca.pem&verify=chain" PING 2>&1)"
  mark
  refuses 'kv-cli, wrong address' 'IP address mismatch \(wanted 127\.0\.0\.1; it names DNS:elsewhere\.test\)$' \
    "$kv_cli" -u "tls://127.0.0.1:$port" --cacert ca.pem PING
  said 'kv-cli, wrong address: kv-server' "$refused"'the peer answered with the alert "bad certificate"$'
  stop "$server"
fi
if start --listen "tls+unix://$work/kv.sock" --tls-cert server.pem --tls-key server.key; then
  mark
  refuses 'tls+unix: unknown CA' "^kv-cli: Could not connect to tls.unix://$work/kv.sock: .*: unable to get local issuer certificate$" \
    "$kv_cli" -u "tls+unix://$work/kv.sock" --cacert other-ca.pem PING
  said 'tls+unix: kv-server' '^kv-server: refused: TLS handshake with .*: the peer answered with the alert "unknown CA"$'
  stop "$server"
fi

# ---- a server that does not start ---------------------------------------------------------------
starts_not() { refuses "$1" "^kv-server: $2\$" timeout 10 "$kv_server" --listen tls://127.0.0.1:0 "${@:3}"; }
starts_not 'the key of another certificate' 'the key client.key does not belong to the certificate server.pem' \
  --tls-cert server.pem --tls-key client.key
starts_not 'no certificate file' 'read the certificate nothing.pem: No such file or directory' --tls-cert nothing.pem --tls-key server.key
starts_not 'no key file' 'read the key nothing.key: No such file or directory' --tls-cert server.pem --tls-key nothing.key
starts_not 'no key in the file' 'the key server.pem holds no private key in PEM form' --tls-cert server.pem
starts_not 'no certificate in the file' 'the certificate server.key holds no certificate in PEM form' \
  --tls-cert server.key --tls-key server.key
starts_not 'no CA in the file' 'the CA file server.key holds no certificate in PEM form' \
  --tls-cert server.pem --tls-key server.key --tls-ca server.key
starts_not 'no CRL in the file' 'the revocation list ca.pem holds no CRL in PEM form' \
  --tls-cert server.pem --tls-key server.key --tls-ca ca.pem --tls-crl ca.pem
starts_not 'an encrypted key, no pass phrase' 'the key locked.key is encrypted: give its pass phrase, .*' \
  --tls-cert server.pem --tls-key locked.key
echo wrong >wrong.pass
starts_not 'an encrypted key, a wrong pass phrase' 'the key locked.key cannot be decrypted with this pass phrase' \
  --tls-cert server.pem --tls-key locked.key --tls-key-pass-file wrong.pass
starts_not 'no certificate given' 'tls://127.0.0.1:0: a TLS server needs a certificate and its key: .*'
starts_not 'certificates of clients without a CA' 'option auth-clients=yes: say whose certificates count, .*' \
  --tls-cert server.pem --tls-key server.key --tls-auth-clients yes
echo sesame >right.pass
if start --listen tls://127.0.0.1:0 --tls-cert server.pem --tls-key locked.key --tls-key-pass-file right.pass; then
  port=${urls[0]##*:}
  is 'an encrypted key, its pass phrase' PONG "$(k PING)"
  stop "$server"
fi

# ---- new certificates ---------------------------------------------------------------------------
cp server.pem live.pem; cp server.key live.key
if tls live; then
  coproc old { timeout 60 openssl s_client -quiet -connect "localhost:$port" -CAfile ca.pem 2>/dev/null; }
  exec 5<&"${old[0]}" 6>&"${old[1]}"
  old_goes_on() {
    local line=''
    printf 'PING\r\n' >&6
    IFS= read -r -t 5 line <&5
    is "$1: an old connection goes on" +PONG "${line%$'\r'}"
  }
  # hup NAME LOG-REGEX CERTIFICATE-SERVED-THEN
  hup() {
    mark
    kill -HUP "$server"
    said "$1: kv-server" "^kv-server: $2\$"
    is "$1: what is served" "$(serial "$3")" "$(shown)"
    old_goes_on "$1"
  }
  old_goes_on 'before SIGHUP'
  is 'before SIGHUP: what is served' "$(serial server.pem)" "$(shown)"
  cp renewed.pem live.pem; cp renewed.key live.key
  hup 'SIGHUP, a new certificate' 'TLS certificates reloaded' renewed.pem
  cp server.pem live.pem
  hup 'SIGHUP, the key of another' \
    'TLS certificates not reloaded, the old ones stay: the key live.key does not belong to the certificate live.pem' renewed.pem
  echo nonsense >live.pem
  hup 'SIGHUP, a bad file' \
    'TLS certificates not reloaded, the old ones stay: the certificate live.pem holds no certificate in PEM form' renewed.pem
  rm live.pem
  hup 'SIGHUP, no file' \
    'TLS certificates not reloaded, the old ones stay: read the certificate live.pem: No such file or directory' renewed.pem
  exec 5<&- 6>&-
  stop "$server"
fi

# A session made before its certificate was revoked must not be accepted.
cp crl.pem live.crl
if tls server --tls-ca ca.pem --tls-crl live.crl; then
  for v in 1_2 1_3; do
    mine=("-tls$v" -cert client.pem -key client.key)
    speak "${mine[@]}" -sess_out mine$v >/dev/null
    has "SIGHUP, a new CRL: before it, -tls$v" $'Reused\n.OK.*1.*closed' "$(speak "${mine[@]}" -sess_in mine$v)"
  done
  { sign ca -revoke client.pem && sign ca -gencrl -out live.crl; } >certify.log 2>&1
  mark
  kill -HUP "$server"
  said 'SIGHUP, a new CRL: kv-server' '^kv-server: TLS certificates reloaded$'
  for v in 1_2 1_3; do
    both "SIGHUP, a new CRL: -tls$v" "$whose \"CN=client\": certificate revoked" 'alert certificate revoked' \
      speak -tls$v -cert client.pem -key client.key -sess_in mine$v
  done
  stop "$server"
fi

# ---- secrets are written only on request --------------------------------------------------------
export SSLKEYLOGFILE=$work/environment.keys
if tls server; then
  is 'SSLKEYLOGFILE in the environment' 'PONG no' "$(k PING) $([ -e environment.keys ] && echo yes || echo no)"
  stop "$server"
fi
if tls server --tls-keylog option.keys; then
  is '--tls-keylog: SSLKEYLOGFILE' 'PONG no' "$(k PING) $([ -e environment.keys ] && echo yes || echo no)"
  has '--tls-keylog' $'CLIENT_TRAFFIC_SECRET_0 [0-9a-f]{64} [0-9a-f]{64}\nSERVER_TRAFFIC_SECRET_0 ' "$(cat option.keys 2>&1)"
  s -tls1_2 </dev/null >/dev/null
  has '--tls-keylog, TLS 1.2' 'CLIENT_RANDOM [0-9a-f]{64} [0-9a-f]{96}' "$(cat option.keys 2>&1)"
  is '--tls-keylog: for its owner only' 600 "$(stat -c %a option.keys 2>&1)"
  stop "$server"
fi
unset SSLKEYLOGFILE

# ---- sslscan ------------------------------------------------------------------------------------
if ! command -v sslscan >/dev/null; then
  fail sslscan 'it is not installed (package sslscan)'
elif tls server; then
  timeout 200 sslscan --no-colour "localhost:$port" >sslscan.out 2>&1
  is 'sslscan: versions that are on' 'TLSv1.2 TLSv1.3 ' "$(awk '$2 == "enabled" {print $1}' sslscan.out | tr '\n' ' ')"
  is 'sslscan: versions that are off' 'SSLv2 SSLv3 TLSv1.0 TLSv1.1 ' \
    "$(awk '$2 == "disabled" {print $1}' sslscan.out | tr '\n' ' ')"
  is 'sslscan: ciphers' "\
TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256
TLSv1.2 ECDHE-ECDSA-AES256-GCM-SHA384
TLSv1.2 ECDHE-ECDSA-CHACHA20-POLY1305
TLSv1.3 TLS_AES_128_GCM_SHA256
TLSv1.3 TLS_AES_256_GCM_SHA384
TLSv1.3 TLS_CHACHA20_POLY1305_SHA256" "$(awk '/^(Preferred|Accepted)/ {print $2, $5}' sslscan.out | sort)"
  has 'sslscan' 'Server supports TLS Fallback SCSV
Session renegotiation not supported
TLSv1.3 not vulnerable to heartbleed
TLSv1.2 not vulnerable to heartbleed' "$(cat sslscan.out)"
  # Debian's OpenSSL lacks compression, so sslscan cannot test it; testssl does.
  is 'sslscan: nothing is wrong' '' "$(grep -Ei '^Insecure|Compression enabled|[^t] vulnerable to' sslscan.out)"
  is 'sslscan: the server goes on' PONG "$(k PING)"
  stop "$server"
fi

# ---- what testssl found -------------------------------------------------------------------------
# One exception: the test's certificate names no address for a CRL or for OCSP.
if [ -n "${scan-}" ]; then
  wait "$scan"
  status=$?  # the number of findings that testssl is unsure about
  is 'testssl ends' yes "$([ $status -le 1 ] && echo yes || echo "$status, $(tail -n 5 testssl.out)")"
  found() { severity_of testssl.csv "$1"; }
  remarks_about_itself testssl.csv | sed 's/^/testssl about itself: /'
  is 'testssl: nothing above LOW' '' "$(findings_above_low testssl.csv '^HIGH cert_revocation$')"
  for id in SSLv2 SSLv3 TLS1_2 TLS1_3 cipherlist_NULL cipherlist_aNULL cipherlist_EXPORT cipherlist_LOW \
    cipherlist_STRONG cert_trust cert_chain_of_trust cert_expirationStatus heartbleed CCS ROBOT \
    secure_renego secure_client_renego CRIME_TLS POODLE_SSL fallback_SCSV SWEET32 FREAK DROWN LOGJAM BEAST \
    LUCKY13 RC4; do
    is "testssl: $id" OK "$(found $id)"
  done
  for id in TLS1 TLS1_1 cipherlist_3DES_IDEA cipherlist_AVERAGE; do  # not offered: INFO, not OK
    is "testssl: $id" INFO "$(found $id)"
  done
  port=$(sed -n 's/^listening on .*://p' "$work/server0.log")
  is 'testssl: the server goes on' PONG "$(k PING)"
  stop "$scanned"
fi
total
