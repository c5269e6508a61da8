#include "conn/tls/settings.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <array>

#include "conn/error.h"

namespace conn::tls {
namespace {

using namespace std::chrono_literals;

constexpr std::array<std::string_view, 28> kKeys{"alpn",
                                                 "auth-clients",
                                                 "ca",
                                                 "ca-dir",
                                                 "cert",
                                                 "ciphers",
                                                 "ciphersuites",
                                                 "crl",
                                                 "crl-check",
                                                 "dh-params",
                                                 "groups",
                                                 "handshake-timeout",
                                                 "key",
                                                 "key-pass-file",
                                                 "keylog",
                                                 "ktls",
                                                 "max-handshakes",
                                                 "max-version",
                                                 "min-version",
                                                 "peer-user",
                                                 "prefer-server-ciphers",
                                                 "resumption",
                                                 "server-name",
                                                 "session-cache",
                                                 "session-timeout",
                                                 "ticket-rotation",
                                                 "tickets",
                                                 "verify"};

bool is_ours(std::string_view key) {
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

std::vector<std::string> parse_list(const Options& options, std::string_view key) {
  std::vector<std::string> items;
  const std::string text = options.text(key, "");
  if (!options.has(key) || text.empty()) return items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) {
      throw Error("option " + std::string(key) + "=" + text + ": an item of the list is empty");
    }
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

template <class Value, std::size_t N>
Value parse_word(const Options& options, std::string_view key, Value fallback,
                 const std::array<std::pair<std::string_view, Value>, N>& words) {
  if (!options.has(key)) return fallback;
  const std::string text = options.text(key, "");
  std::string known;
  for (const auto& [word, value] : words) {
    if (word == text) return value;
    known.append(known.empty() ? "" : ", ").append(word);
  }
  throw Error("option " + std::string(key) + "=" + text + ": must be one of " + known);
}

int parse_version(const Options& options, std::string_view key, int fallback) {
  return parse_word(options, key, fallback,
                    std::array<std::pair<std::string_view, int>, 2>{
                        {{"1.2", TLS1_2_VERSION}, {"1.3", TLS1_3_VERSION}}});
}

std::vector<Settings::Identity> parse_identities(const Options& options) {
  const std::vector<std::string> certs = parse_list(options, "cert");
  const std::vector<std::string> keys = parse_list(options, "key");
  if (certs.empty() && !keys.empty()) {
    throw Error("option key=" + options.text("key", "") + ": cert=FILE is missing");
  }
  if (!keys.empty() && keys.size() != certs.size()) {
    throw Error("option key names " + std::to_string(keys.size()) + " files and cert " +
                std::to_string(certs.size()) + ": each certificate needs its key, in this order");
  }
  std::vector<Settings::Identity> identities;
  for (std::size_t i = 0; i < certs.size(); ++i) {
    // Without key= the certificate's file holds both.
    identities.push_back({certs[i], keys.empty() ? certs[i] : keys[i]});
  }
  return identities;
}

std::vector<std::string> parse_alpn(const Options& options) {
  std::vector<std::string> names = parse_list(options, "alpn");
  for (const std::string& name : names) {
    if (name.size() > 255) throw Error("option alpn: a protocol's name has 255 bytes at most");
  }
  return names;
}

}  // namespace

bool is_of_both(std::string_view key) noexcept {
  return key == "linger" || key == "end-linger" || key == "connect-timeout";
}

SplitOptions split_options(const Options& options) {
  SplitOptions split;
  for (const auto& [key, value] : options.values()) {
    if (key == "key-pass") {
      throw Error("a pass phrase has no place in a URL: write it to a file, key-pass-file=FILE");
    }
    if (is_ours(key) || is_of_both(key)) split.tls.set(key, value);
    if (!is_ours(key)) split.below.set(key, value);
  }
  return split;
}

Settings parse_settings(const Options& options) {
  Settings s;
  s.identities = parse_identities(options);
  s.key_pass_file = options.text("key-pass-file", "");
  s.ca = options.text("ca", "");
  s.ca_dir = options.text("ca-dir", "");
  s.crl = options.text("crl", "");
  s.crl_check = parse_word<Settings::CrlCheck, 2>(
      options, "crl-check", s.crl_check,
      {{{"leaf", Settings::CrlCheck::kLeaf}, {"chain", Settings::CrlCheck::kChain}}});
  s.min_version = parse_version(options, "min-version", TLS1_2_VERSION);
  s.max_version = parse_version(options, "max-version", 0);
  if (s.max_version != 0 && s.max_version < s.min_version) {
    throw Error("option max-version=" + options.text("max-version", "") +
                ": it is below min-version");
  }
  s.ciphers = options.text("ciphers", "");
  s.ciphersuites = options.text("ciphersuites", "");
  s.groups = options.text("groups", "");
  s.dh_params = options.text("dh-params", "");
  s.prefer_server_ciphers = options.flag("prefer-server-ciphers", s.prefer_server_ciphers);
  s.auth_clients =
      parse_word<Settings::ClientAuth, 3>(options, "auth-clients", s.auth_clients,
                                          {{{"no", Settings::ClientAuth::kNo},
                                            {"optional", Settings::ClientAuth::kOptional},
                                            {"yes", Settings::ClientAuth::kRequired}}});
  s.verify = parse_word<Settings::Verify, 3>(options, "verify", s.verify,
                                             {{{"yes", Settings::Verify::kFull},
                                               {"chain", Settings::Verify::kChain},
                                               {"no", Settings::Verify::kNo}}});
  s.server_name = options.text("server-name", "");
  s.alpn = parse_alpn(options);
  s.resumption = parse_word<Settings::Resumption, 3>(options, "resumption", s.resumption,
                                                     {{{"tickets", Settings::Resumption::kTickets},
                                                       {"cache", Settings::Resumption::kCache},
                                                       {"no", Settings::Resumption::kNo}}});
  s.tickets = static_cast<unsigned>(options.number("tickets", s.tickets, 0, 16));
  s.ticket_rotation = options.duration("ticket-rotation", s.ticket_rotation, 1s, 7 * 24h);
  s.session_timeout = options.duration("session-timeout", s.session_timeout, 1s, 7 * 24h);
  s.session_cache =
      static_cast<unsigned>(options.number("session-cache", s.session_cache, 1, 100'000'000));
  s.peer_user = parse_word<Settings::PeerUser, 5>(options, "peer-user", s.peer_user,
                                                  {{{"cn", Settings::PeerUser::kCommonName},
                                                    {"uri", Settings::PeerUser::kUri},
                                                    {"dns", Settings::PeerUser::kDns},
                                                    {"email", Settings::PeerUser::kEmail},
                                                    {"no", Settings::PeerUser::kNo}}});
  s.keylog = options.text("keylog", "");
  s.ktls = options.flag("ktls", s.ktls);
  s.handshake_timeout = options.duration("handshake-timeout", s.handshake_timeout, 1ms, 1h);
  s.max_handshakes =
      static_cast<unsigned>(options.number("max-handshakes", s.max_handshakes, 1, 1'000'000));
  s.connect_timeout = options.duration("connect-timeout", s.connect_timeout, 1ms, 24h);
  s.linger = options.duration("linger", s.linger, 0s, 1h);
  s.end_linger = EndLinger::parse(options);
  if (s.auth_clients != Settings::ClientAuth::kNo && s.ca.empty() && s.ca_dir.empty()) {
    throw Error("option auth-clients=" + options.text("auth-clients", "") +
                ": say whose certificates count, with ca=FILE or ca-dir=FOLDER");
  }
  return s;
}

}  // namespace conn::tls
