// SPDX-License-Identifier: BSD-3-Clause
#include "tls_settings.h"

#include "conn/transports/transports.h"

namespace kv {

std::vector<TlsSettings::Option> TlsSettings::options() {
  std::vector<Option> all = {
      {"--tls-cert", "cert",
       "Certificate and its chain, PEM; several, by commas, are chosen by the name asked for"},
      {"--tls-key", "key", "Private key, in the certificates' order (in the certificate's file)"},
      {"--tls-key-pass-file", "key-pass-file", "File whose first line decrypts the key"},
      {"--tls-ca", "ca", "Whose certificates clients may have, PEM"},
      {"--tls-ca-dir", "ca-dir", "The same as a folder (openssl rehash)"},
      {"--tls-crl", "crl", "Revoked certificates of clients, PEM"},
      {"--tls-auth-clients", "auth-clients",
       "Certificates of clients: no, optional, yes (yes where a CA is given, else no)"},
      {"--tls-alpn", "alpn", "Protocol names for ALPN, by commas"},
      {"--tls-keylog", "keylog",
       "File for session secrets, to decrypt captures: for debugging only"},
  };
  const conn::Registry registry = conn::all_transports();
  const conn::ConnectionType* const tls = registry.find("tls");
  const conn::OptionTable* const table = tls != nullptr ? tls->option_table() : nullptr;
  if (table == nullptr) return all;  // a build without TLS
  for (Option& option : all) {
    for (const conn::OptionGroup& group : table->groups()) {
      for (const conn::OptionRow& row : group.rows) {
        if (row.name() != option.key) continue;
        option.words = row.words();
        option.place = row.place();
      }
    }
  }
  return all;
}

void TlsSettings::attach(const conn::Registry& registry) {
  for (const auto& type : registry.types()) {
    if (type->name() == "tls" || type->name().starts_with("tls+")) types_.push_back(type.get());
  }
  if (options_.empty()) return;
  if (types_.empty()) registry.require("tls");  // throws: a build without TLS
  apply();
}

std::string TlsSettings::reload() {
  try {
    apply();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

void TlsSettings::apply() const {
  conn::Options options = options_;
  const bool ca = !options.text("ca", "").empty() || !options.text("ca-dir", "").empty();
  if (ca && options.text("auth-clients", "").empty()) options.set("auth-clients", "yes");
  for (conn::ConnectionType* type : types_) type->configure(options);
}

}  // namespace kv
