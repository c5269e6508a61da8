// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Redis's tls-* settings, from the command line and CONFIG SET, for every TLS transport there is.

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conn/registry.h"
#include "conn/url/option_table.h"
#include "server_state.h"

namespace kv {

/// A text whose memory is overwritten before it is given back.
class Secret {
 public:
  Secret() = default;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret() { wipe(); }
  void assign(std::string_view text);
  std::string_view view() const noexcept { return text_; }

 private:
  void wipe() noexcept;
  std::string text_;
};

class TlsSettings final : public MoreParameters {
 public:
  struct Option {
    const char* flags;  ///< "--tls-cert,--tls-cert-file"
    std::string_view parameter;
    const char* description;
    std::string fallback;            ///< empty: in the description, if there is one
    std::vector<std::string> words;  ///< that it takes; empty: other things
    conn::OptionPlace place;         ///< what its value names
  };
  /// For the command line.
  static std::vector<Option> options();

  /// Takes the pass phrase out of the command line and overwrites it there; returns the rest.
  std::vector<const char*> take_pass_phrase(int argc, char** argv);
  /// A value of the command line. Empty if it is good, else the reason.
  std::string store(std::string_view parameter, std::string_view value);
  /// Configures every TLS transport of `registry`, which is borrowed. Throws conn::Error, also if
  /// there are settings and no such transport.
  void attach(const conn::Registry& registry);
  /// Whether there is a TLS transport.
  bool attached() const noexcept { return !types_.empty(); }
  /// Reads all files again. Empty if it worked, else the reason; nothing has changed then.
  std::string reload();

  std::vector<std::string_view> names() const override;
  std::string get(std::string_view name) const override;
  std::optional<Refusal> set(const Values& values) override;

 private:
  using Texts = std::map<std::string_view, std::string>;  ///< by parameter; those that were given

  static conn::Options translate(const Texts& texts);
  void apply(const Texts& texts, std::string_view phrase);
  void undo(conn::ConnectionType& type) const;

  std::vector<conn::ConnectionType*> types_;
  Texts texts_;
  Secret phrase_;
};

}  // namespace kv
