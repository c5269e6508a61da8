// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// kv-cli's TLS options, as redis-cli has them.

#include <string>
#include <string_view>

#include "conn/registry.h"

namespace kv {

struct CliTls {
  bool on = false, insecure = false;
  std::string ca, ca_folder, cert, key, name, ciphers, ciphersuites;
};

/// Configures the TLS transports of `registry` and returns the URL to use: with `tls.on` a plain
/// one becomes that of TLS over the same transport. Throws conn::Error.
std::string use_tls(const conn::Registry& registry, const CliTls& tls, const std::string& url);

/// Whether `scheme` is TLS, over whatever it may be.
bool is_tls_scheme(std::string_view scheme);
/// The scheme of TLS over that of `plain`.
std::string tls_scheme(const std::string& plain);

}  // namespace kv
