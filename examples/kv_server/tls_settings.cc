// SPDX-License-Identifier: BSD-3-Clause
#include "tls_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "conn/transports/transports.h"
#include "resp_text.h"
#if AECONN_TLS
#include "conn/tls/type.h"
#endif

namespace kv {
namespace {

constexpr std::string_view kPass = "tls-key-file-pass", kAuth = "tls-auth-clients",
                           kProtocols = "tls-protocols", kCaching = "tls-session-caching",
                           kCacheSize = "tls-session-cache-size",
                           kCacheTimeout = "tls-session-cache-timeout", kCa = "tls-ca-cert-file",
                           kCaFolder = "tls-ca-cert-dir", kPeerUser = "tls-peer-user";

enum class Kind { kText, kYesNo, kAuthMode, kVersions, kCount, kSeconds, kPhrase };

struct Row {
  std::string_view parameter;
  const char* flags;
  std::string_view key;  ///< the transport's option; empty where it is more than a copy
  Kind kind;
  bool in_config;  ///< Redis has it too
  std::string_view fallback;
  const char* description;
};

constexpr Row kRows[] = {
    {"tls-cert-file", "--tls-cert,--tls-cert-file", "cert", Kind::kText, true, "",
     "Certificate and its chain, PEM; several, by commas, are chosen by the name asked for"},
    {"tls-key-file", "--tls-key,--tls-key-file", "key", Kind::kText, true, "",
     "Private key, in the certificates' order (in the certificate's file)"},
    {kPass, "--tls-key-file-pass", "", Kind::kPhrase, true, "", "Pass phrase of the key"},
    {kCa, "--tls-ca,--tls-ca-cert-file", "ca", Kind::kText, true, "",
     "Whose certificates clients may have, PEM"},
    {kCaFolder, "--tls-ca-dir,--tls-ca-cert-dir", "ca-dir", Kind::kText, true, "",
     "The same as a folder (openssl rehash)"},
    {kAuth, "--tls-auth-clients", "", Kind::kAuthMode, true, "",
     "Certificates of clients: no, optional, yes (yes where a CA is given, else no)"},
    {kProtocols, "--tls-protocols", "", Kind::kVersions, true, "",
     "Such as \"TLSv1.2 TLSv1.3\" (both)"},
    {"tls-ciphers", "--tls-ciphers", "ciphers", Kind::kText, true, "", "Ciphers of TLS 1.2"},
    {"tls-ciphersuites", "--tls-ciphersuites", "ciphersuites", Kind::kText, true, "",
     "Ciphers of TLS 1.3"},
    {"tls-prefer-server-ciphers", "--tls-prefer-server-ciphers", "prefer-server-ciphers",
     Kind::kYesNo, true, "yes", "Whose order of ciphers counts"},
    {kCaching, "--tls-session-caching", "", Kind::kYesNo, true, "yes",
     "Clients may resume sessions"},
    {kCacheSize, "--tls-session-cache-size", "", Kind::kCount, true, "20480",
     "Most sessions kept, 0: no limit"},
    {kCacheTimeout, "--tls-session-cache-timeout", "", Kind::kSeconds, true, "300",
     "Seconds for which a session can be resumed"},
    {"tls-dh-params-file", "--tls-dh-params-file", "dh-params", Kind::kText, true, "",
     "DH parameters for TLS 1.2"},
    {"tls-crl", "--tls-crl", "crl", Kind::kText, false, "", "Revoked certificates of clients, PEM"},
    {"tls-alpn", "--tls-alpn", "alpn", Kind::kText, false, "",
     "Protocol names for ALPN, by commas"},
    {"tls-groups", "--tls-groups", "groups", Kind::kText, false, "", "Key exchange groups"},
    {kPeerUser, "--tls-peer-user", "peer-user", Kind::kText, false, "",
     "What of a client's certificate names it: cn, uri, dns, email, no"},
    {"tls-ktls", "--tls-ktls", "ktls", Kind::kYesNo, false, "", "Let the kernel encrypt"},
    {"tls-keylog", "--tls-keylog", "keylog", Kind::kText, false, "",
     "File for session secrets, to decrypt captures: for debugging only"},
};

constexpr std::array<std::string_view, 2> kYesNo{"yes", "no"};
constexpr std::array<std::string_view, 3> kAuthModes{"no", "yes", "optional"};
constexpr std::array<std::string_view, 2> kVersions{"TLSv1.2", "TLSv1.3"};

template <class Words>
bool is_one_of(const Words& words, std::string_view value) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view each) { return equals_ignore_case(value, each); });
}

/// The option of tls that a setting becomes; null without one, and in a build without TLS.
const conn::OptionRow* row_of_transport(const conn::OptionTable* tls, const Row& row) {
  if (tls == nullptr || row.key.empty()) return nullptr;
  for (const conn::OptionGroup& group : tls->groups())
    for (const conn::OptionRow& each : group.rows)
      if (each.name() == row.key) return &each;
  return nullptr;
}

std::vector<std::string> words_of(const Row& row, const conn::OptionRow* below) {
  if (row.kind == Kind::kYesNo) return {kYesNo.begin(), kYesNo.end()};
  if (row.kind == Kind::kAuthMode) return {kAuthModes.begin(), kAuthModes.end()};
  if (row.kind == Kind::kVersions) return {kVersions.begin(), kVersions.end()};
  return below != nullptr ? below->words() : std::vector<std::string>();
}

/// What it takes and, where it has no default of its own, what the transport does.
TlsSettings::Option option_of(const conn::OptionTable* tls, const Row& row) {
  const conn::OptionRow* const below = row_of_transport(tls, row);
  TlsSettings::Option option{row.flags,
                             row.parameter,
                             row.description,
                             std::string(row.fallback),
                             words_of(row, below),
                             below != nullptr ? below->place() : conn::OptionPlace::kNone};
  if (option.fallback.empty() && below != nullptr && !option.words.empty())
    option.fallback = below->default_text();
  return option;
}

const Row* find_row(std::string_view parameter) {
  const auto found = std::find_if(std::begin(kRows), std::end(kRows),
                                  [&](const Row& row) { return row.parameter == parameter; });
  return found == std::end(kRows) ? nullptr : &*found;
}

std::string check_number(std::string_view text, std::int64_t low, std::int64_t high) {
  const auto value = parse_integer(text);
  if (!value) return "argument couldn't be parsed into an integer";
  if (*value >= low && *value <= high) return {};
  return fmt::format("argument must be between {} and {} inclusive", low, high);
}

/// Which of TLS 1.2 and 1.3 are on, and a reason if `text` does not say it well.
struct Protocols {
  bool v12 = false, v13 = false;
  std::string reason;

  explicit Protocols(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(' '), text.size());
      take(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  void take(std::string_view word) {
    if (equals_ignore_case(word, kVersions[0])) {
      v12 = true;
    } else if (equals_ignore_case(word, kVersions[1])) {
      v13 = true;
    } else if (!word.empty() && reason.empty()) {
      reason = fmt::format("{} is not offered; use '{}', '{}' or both", word, kVersions[0],
                           kVersions[1]);
    }
  }
};

/// The reason `value` is refused, in Redis's words where it has some; empty if it is good.
std::string check(const Row& row, std::string_view value) {
  switch (row.kind) {
    case Kind::kYesNo:
      if (is_one_of(kYesNo, value)) return {};
      return "argument must be 'yes' or 'no'";
    case Kind::kAuthMode:
      if (is_one_of(kAuthModes, value)) return {};
      return fmt::format("argument(s) must be one of the following: {}",
                         fmt::join(kAuthModes, ", "));
    case Kind::kVersions:
      return Protocols(value).reason;
    case Kind::kCount:
      return check_number(value, 0, 100'000'000);
    case Kind::kSeconds:
      return check_number(value, 1, 7 * 24 * 3600);
    case Kind::kText:
    case Kind::kPhrase:
      break;
  }
  return {};
}

std::string normal_form(const Row& row, std::string_view value) {
  const bool is_word = row.kind == Kind::kYesNo || row.kind == Kind::kAuthMode;
  return is_word ? to_lower(value) : std::string(value);
}

template <class Texts>
std::string value_of(const Texts& texts, std::string_view parameter) {
  const auto found = texts.find(parameter);
  if (found != texts.end()) return found->second;
  if (parameter == kAuth) {
    return value_of(texts, kCa).empty() && value_of(texts, kCaFolder).empty() ? "no" : "yes";
  }
  return std::string(find_row(parameter)->fallback);
}

void set_pass_phrase([[maybe_unused]] conn::ConnectionType& type,
                     [[maybe_unused]] std::string_view phrase) {
#if AECONN_TLS
  if (auto* tls = dynamic_cast<conn::tls::TlsType*>(&type)) tls->set_pass_phrase(phrase);
#endif
}

}  // namespace

void Secret::assign(std::string_view text) {
  wipe();
  text_.reserve(text.size());
  text_.assign(text);
}

void Secret::wipe() noexcept {
  explicit_bzero(text_.data(), text_.size());
  text_.clear();
}

std::vector<TlsSettings::Option> TlsSettings::options() {
  const conn::Registry registry = conn::all_transports();
  const conn::ConnectionType* const tls = registry.find("tls");
  const conn::OptionTable* const table = tls != nullptr ? tls->option_table() : nullptr;
  std::vector<Option> options;
  for (const Row& row : kRows) options.push_back(option_of(table, row));
  return options;
}

std::vector<const char*> TlsSettings::take_pass_phrase(int argc, char** argv) {
  constexpr std::string_view kFlag = "--tls-key-file-pass";
  std::vector<const char*> rest;
  for (int i = 0; i < argc; ++i) {
    const std::string_view word = argv[i];
    char* value = nullptr;
    if (word == kFlag && i + 1 < argc) {
      value = argv[++i];
    } else if (word.starts_with(kFlag) && word.substr(kFlag.size()).starts_with('=')) {
      value = argv[i] + kFlag.size() + 1;
    }
    if (value == nullptr) {
      rest.push_back(argv[i]);
      continue;
    }
    phrase_.assign(value);
    explicit_bzero(value, std::strlen(value));
  }
  return rest;
}

std::string TlsSettings::store(std::string_view parameter, std::string_view value) {
  const Row* row = find_row(parameter);
  if (row == nullptr) return "there is no such parameter";
  if (row->kind == Kind::kPhrase) {
    phrase_.assign(value);
    return {};
  }
  std::string reason = check(*row, value);
  if (reason.empty()) texts_[row->parameter] = normal_form(*row, value);
  return reason;
}

void TlsSettings::attach(const conn::Registry& registry) {
  for (const auto& type : registry.types()) {
    if (type->name() == "tls" || type->name().starts_with("tls+")) types_.push_back(type.get());
  }
  if (types_.empty() && (!texts_.empty() || !phrase_.view().empty())) registry.require("tls");
  apply(texts_, phrase_.view());
}

std::string TlsSettings::reload() {
  try {
    apply(texts_, phrase_.view());
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

std::vector<std::string_view> TlsSettings::names() const {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) {
    if (row.in_config && attached()) names.push_back(row.parameter);
  }
  return names;
}

std::string TlsSettings::get(std::string_view name) const {
  return find_row(name) != nullptr ? value_of(texts_, name) : std::string();
}

std::optional<MoreParameters::Refusal> TlsSettings::set(const Values& values) {
  Texts texts = texts_;
  Secret phrase;
  phrase.assign(phrase_.view());
  for (const auto& [name, value] : values) {
    const Row* row = find_row(name);
    if (row == nullptr) return Refusal{std::string(name), "there is no such parameter"};
    std::string reason = check(*row, value);
    if (!reason.empty()) return Refusal{std::string(name), std::move(reason)};
    if (row->kind == Kind::kPhrase)
      phrase.assign(value);
    else
      texts[row->parameter] = normal_form(*row, value);
  }
  try {
    apply(texts, phrase.view());
  } catch (const std::exception& error) {
    return Refusal{std::string(values.front().first), error.what()};
  }
  texts_ = std::move(texts);
  phrase_.assign(phrase.view());
  return {};
}

conn::Options TlsSettings::translate(const Texts& texts) {
  conn::Options options;
  for (const Row& row : kRows) {
    std::string value = value_of(texts, row.parameter);
    if (!row.key.empty() && !value.empty()) options.set(std::string(row.key), std::move(value));
  }
  options.set("auth-clients", value_of(texts, kAuth));
  const Protocols protocols(value_of(texts, kProtocols));
  if (protocols.v12 || protocols.v13) {
    options.set("min-version", protocols.v12 ? "1.2" : "1.3");
    options.set("max-version", protocols.v13 ? "1.3" : "1.2");
  }
  options.set("resumption", value_of(texts, kCaching) == "yes" ? "cache" : "no");
  const std::string size = value_of(texts, kCacheSize);
  options.set("session-cache", size == "0" ? "100000000" : size);
  options.set("session-timeout", value_of(texts, kCacheTimeout) + "s");
  return options;
}

void TlsSettings::apply(const Texts& texts, std::string_view phrase) {
  const conn::Options options = translate(texts);
  std::size_t done = 0;
  try {
    for (; done < types_.size(); ++done) {
      set_pass_phrase(*types_[done], phrase);
      types_[done]->configure(options);
    }
  } catch (const conn::Error&) {
    set_pass_phrase(*types_[done], phrase_.view());
    while (done > 0) undo(*types_[--done]);
    throw;
  }
}

/// The files changed while they were read: back to what holds for the others.
void TlsSettings::undo(conn::ConnectionType& type) const {
  try {
    set_pass_phrase(type, phrase_.view());
    type.configure(translate(texts_));
  } catch (const conn::Error&) {
    return;  // neither can be had any more; this type keeps the new ones
  }
}

}  // namespace kv
