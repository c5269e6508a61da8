// SPDX-License-Identifier: BSD-3-Clause
#include "cli_tls.h"

#include <algorithm>
#include <vector>

namespace kv {
namespace {

conn::Options translate(const CliTls& tls) {
  conn::Options options;
  const auto add = [&options](const char* key, const std::string& value) {
    if (!value.empty()) options.set(key, value);
  };
  add("ca", tls.ca);
  add("ca-dir", tls.ca_folder);
  add("cert", tls.cert);
  add("key", tls.key);
  add("server-name", tls.name);
  add("ciphers", tls.ciphers);
  add("ciphersuites", tls.ciphersuites);
  if (tls.insecure) options.set("verify", "no");
  return options;
}

}  // namespace

namespace {

bool is_one_tls_scheme(std::string_view scheme) {
  return scheme == "tls" || scheme.starts_with("tls+");
}

std::vector<std::string> parts_of(std::string_view scheme) {
  conn::Endpoint endpoint;
  endpoint.scheme = scheme;
  return endpoint.schemes();
}

}  // namespace

bool is_tls_scheme(std::string_view scheme) {
  const auto parts = parts_of(scheme);
  return std::all_of(parts.begin(), parts.end(), is_one_tls_scheme);
}

std::string tls_scheme(const std::string& plain) {
  std::string list;
  for (const std::string& one : parts_of(plain)) {
    if (!list.empty()) list += '|';
    list += is_one_tls_scheme(one) ? one : one == "tcp" ? "tls" : "tls+" + one;
  }
  return list;
}

std::string use_tls(const conn::Registry& registry, const CliTls& tls, const std::string& url) {
  const conn::Options options = translate(tls);
  std::string scheme = conn::Endpoint::parse(url).scheme;
  std::string target = url;
  if (tls.on && !is_tls_scheme(scheme)) {
    const std::string rest = url.substr(scheme.size());
    scheme = tls_scheme(scheme);
    target = scheme + rest;
  }
  if (is_tls_scheme(scheme)) {
    registry.require(scheme).configure(options);
  } else if (!options.empty()) {
    // Going on in the clear is not what someone wants who names a certificate.
    throw conn::Error(url + " is not TLS, and there are options for TLS: add --tls");
  }
  return target;
}

}  // namespace kv
