#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/clients/testssl_findings: findings about a server count, remarks of testssl about its own
# machine do not. The lines were written by testssl 3.0; `untested` and `fatal` imitate its format.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
# shellcheck source=tests/clients/testssl_findings
. tests/clients/testssl_findings

csv=$work/testssl.csv
lines() {  # LINES...: a file of these
  printf '%s\n' '"id","fqdn/ip","port","severity","finding","cve","cwe"' "$@" >"$csv"
}
engine='"engine_problem","/","443","WARN","No engine or GOST support via engine with your /usr/bin/openssl","",""'
untested='"heartbleed","localhost/127.0.0.1","14433","WARN","Test failed: no openssl for it","",""'
ok='"SSLv2","localhost/127.0.0.1","14433","OK","not offered","",""'
info='"service","localhost/127.0.0.1","14433","INFO","HTTP","",""'
low='"TLS1","localhost/127.0.0.1","14433","LOW","offered (deprecated)","",""'
medium='"cert_keySize","localhost/127.0.0.1","14433","MEDIUM","RSA 1024 bits","",""'
high='"cert_subjectAltName","localhost/127.0.0.1","14433","HIGH","No SAN, browsers are complaining","",""'
critical='"cipherlist_aNULL","localhost/127.0.0.1","14433","CRITICAL","offered","","CWE-327"'
revocation='"cert_revocation","localhost/127.0.0.1","14433","HIGH","Neither CRL nor OCSP URI provided","",""'
fatal='"scanProblem","localhost/127.0.0.1","14433","FATAL","Can'\''t connect to 127.0.0.1:14433","",""'

lines "$ok" "$info" "$low"
is 'a good server: no finding' '' "$(findings_above_low "$csv" '^$')"
lines "$engine" "$ok" "$info" "$low"
is 'its own engine is no finding' '' "$(findings_above_low "$csv" '^$')"
is 'but is told' 'WARN engine_problem No engine or GOST support via engine with your /usr/bin/openssl' \
  "$(remarks_about_itself "$csv")"
for finding in "$medium" "$high" "$critical" "$fatal"; do
  lines "$engine" "$ok" "$finding" "$low"
  IFS='"' read -r _ id _ _ _ _ _ severity _ text _ <<<"$finding"
  is "$severity is a finding" "$severity $id $text" "$(findings_above_low "$csv" '^$')"
done
lines "$revocation" "$high"
is 'an exception leaves out what it names only' 'HIGH cert_subjectAltName No SAN, browsers are complaining' \
  "$(findings_above_low "$csv" '^HIGH cert_revocation$')"
lines "$untested" "$ok"
is 'a check that could not be made does not say OK' 'WARN OK' \
  "$(severity_of "$csv" heartbleed) $(severity_of "$csv" SSLv2)"
total
