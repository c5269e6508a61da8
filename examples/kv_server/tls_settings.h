// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The --tls-* options: options of the TLS transports that hold for all URLs, and can be read again
// while the server runs.

#include <string>
#include <string_view>
#include <vector>

#include "conn/registry.h"
#include "conn/url/option_table.h"

namespace kv {

class TlsSettings {
 public:
  struct Option {
    const char* flag;  ///< "--tls-cert"
    const char* key;   ///< the option of the transport: "cert"
    const char* description;
    std::vector<std::string> words = {};  ///< the accepted words; empty: any text
    conn::OptionPlace place = conn::OptionPlace::kNone;
  };
  static std::vector<Option> options();

  /// The values are checked in attach().
  void set(const std::string& key, const std::string& value) { options_.set(key, value); }
  /// Configures the registry's TLS transports, which reload() will configure again. Throws
  /// conn::Error.
  void attach(const conn::Registry& registry);
  bool attached() const noexcept { return !types_.empty(); }
  /// Reads all files again. Returns "", or the reason why they cannot be used: a transport then
  /// keeps what it has.
  std::string reload();

 private:
  void apply() const;

  conn::Options options_;
  std::vector<conn::ConnectionType*> types_;
};

}  // namespace kv
