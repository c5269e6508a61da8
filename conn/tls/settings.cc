// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/settings.h"

#include <algorithm>
#include <array>

#include "ae/once.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

using namespace std::chrono_literals;

// The words that an option can be set to, a table for each such option, in the order in which the
// documentation lists them after the default.
constexpr std::array kCrlCheck{OptionWord{"leaf", Settings::CrlCheck::kLeaf},
                               OptionWord{"chain", Settings::CrlCheck::kChain}};
constexpr std::array kReload{OptionWord{"no", Settings::Reload::kNo},
                             OptionWord{"auto", Settings::Reload::kAuto}};
constexpr std::array kClientAuth{OptionWord{"no", Settings::ClientAuth::kNo},
                                 OptionWord{"optional", Settings::ClientAuth::kOptional},
                                 OptionWord{"yes", Settings::ClientAuth::kRequired}};
constexpr std::array kVerify{OptionWord{"yes", Settings::Verify::kFull},
                             OptionWord{"chain", Settings::Verify::kChain},
                             OptionWord{"no", Settings::Verify::kNo}};
constexpr std::array kPeerUser{
    OptionWord{"cn", Settings::PeerUser::kCommonName}, OptionWord{"uri", Settings::PeerUser::kUri},
    OptionWord{"dns", Settings::PeerUser::kDns}, OptionWord{"email", Settings::PeerUser::kEmail},
    OptionWord{"no", Settings::PeerUser::kNo}};
constexpr std::array kVersion{OptionWord{"1.2", TLS1_2_VERSION}, OptionWord{"1.3", TLS1_3_VERSION}};
constexpr std::array kResumption{OptionWord{"tickets", Settings::Resumption::kTickets},
                                 OptionWord{"cache", Settings::Resumption::kCache},
                                 OptionWord{"no", Settings::Resumption::kNo}};

// Returns whether `key` is an option of TLS and not of the layer below. Returns true also for an
// option that TLS had in an earlier version, so that TLS reports an error that explains it.
bool is_ours(std::string_view key) {
  return !is_of_both(key) && (tls_options().has(key) || !tls_options().gone(key).empty());
}

std::vector<std::string> parse_list(OptionReader& options, std::string_view key) {
  std::vector<std::string> items;
  const std::string text = options.text(key);
  if (text.empty()) return items;
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

/// Throws Error if the option `key` is given without the option `needed`, which names a file, since
/// `key` has no effect then.
void require(OptionReader& options, std::string_view key, std::string_view needed) {
  const std::string value = options.text(key);
  if (value.empty() || !options.text(needed).empty()) return;
  throw Error("option " + std::string(key) + "=" + value + ": " + std::string(needed) +
              "=FILE is missing");
}

std::vector<Settings::Identity> parse_identities(OptionReader& options) {
  require(options, "key", "cert");
  require(options, "key-pass-file", "cert");
  const std::vector<std::string> certs = parse_list(options, "cert");
  const std::vector<std::string> keys = parse_list(options, "key");
  if (!keys.empty() && keys.size() != certs.size()) {
    throw Error("option key names " + std::to_string(keys.size()) + " files and cert " +
                std::to_string(certs.size()) + ": each certificate needs its key, in this order");
  }
  std::vector<Settings::Identity> identities;
  for (std::size_t i = 0; i < certs.size(); ++i) {
    // Without option key, the certificate file also holds the private key.
    identities.push_back({certs[i], keys.empty() ? certs[i] : keys[i]});
  }
  return identities;
}

/// Returns the value of option max-version; 0, meaning the newest version supported, if the option
/// is not given.
int parse_max_version(OptionReader& options) {
  const int version = options.pick("max-version", kVersion);
  return options.given("max-version") ? version : 0;
}

std::vector<std::string> parse_alpn(OptionReader& options) {
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

namespace {

using Row = OptionRow;
constexpr OptionSide kBoth = OptionSide::kBoth, kListener = OptionSide::kListener,
                     kConnecting = OptionSide::kConnecting;
constexpr OptionPlace kFile = OptionPlace::kFile, kFiles = OptionPlace::kFiles;

std::vector<Row> trust_rows(const Settings& d) {
  return {
      Row::text("cert", kBoth, "", "PEM files",
                "certificate and chain; several, by commas, are chosen by SNI")
          .of(kFiles),
      Row::text("key", kBoth, "cert's", "PEM files", "private keys, in the order of `cert`")
          .of(kFiles),
      Row::text("key-pass-file", kBoth, "", "a file", "its first line decrypts the keys").of(kFile),
      Row::text("ca", kBoth, "", "a PEM file", "whose certificates count").of(kFile),
      Row::text("ca-dir", kBoth, "", "a folder", "the same, as `openssl rehash` leaves it")
          .of(OptionPlace::kFolder),
      Row::text("crl", kBoth, "", "a PEM file",
                "revocation lists; a certificate without one is then refused")
          .of(kFile),
      Row::word("crl-check", kBoth, kCrlCheck, d.crl_check, "whose revocation is looked up"),
      Row::word("reload", kBoth, kReload, d.reload, "whether changed files are read again"),
      Row::word("auth-clients", kListener, kClientAuth, d.auth_clients,
                "whether clients show a certificate; needs `ca` or `ca-dir`"),
      Row::word("verify", kConnecting, kVerify, d.verify,
                "the chain and the name; only the chain; nothing"),
      Row::text("server-name", kConnecting, "the host", "a name or address",
                "what is sent as SNI and looked for"),
      Row::word("peer-user", kBoth, kPeerUser, d.peer_user,
                "what of a certificate peer_user() gives")};
}

std::vector<Row> protocol_rows(const Settings& d) {
  return {
      Row::word("min-version", kBoth, kVersion, d.min_version,
                "the oldest version of TLS that is spoken"),
      Row::word("max-version", kBoth, kVersion, d.max_version, "the newest that is spoken")
          .by_default("the newest"),
      Row::text("ciphers", kBoth, "ECDHE and DHE", "OpenSSL's list",
                "of TLS 1.2; by default with AES-GCM or ChaCha20-Poly1305")
          .tuning(),
      Row::text("ciphersuites", kBoth, "OpenSSL's", "OpenSSL's list", "of TLS 1.3").tuning(),
      Row::text("groups", kBoth, "OpenSSL's", "as `X25519:P-256`", "for the key exchange").tuning(),
      Row::text("dh-params", kListener, "", "a PEM file", "without it TLS 1.2 has no DHE")
          .of(kFile)
          .tuning(),
      Row::flag("prefer-server-ciphers", kListener, d.prefer_server_ciphers, "whose order counts")
          .tuning(),
      Row::text("alpn", kBoth, "", "names, by commas",
                "a server takes the first of its own that is offered")};
}

std::vector<Row> session_rows(const Settings& d) {
  return {Row::word("resumption", kBoth, kResumption, d.resumption,
                    "how clients come back without a full handshake"),
          Row::duration("ticket-rotation", kListener, d.ticket_rotation, 1s, 7 * 24h,
                        "a new key seals tickets; the last one still opens them")
              .tuning(),
          Row::duration("session-timeout", kListener, d.session_timeout, 1s, 7 * 24h,
                        "how long a session may be resumed")
              .tuning(),
          Row::number("session-cache", kListener, d.session_cache, 1, 100'000'000,
                      "most sessions kept with `resumption=cache`")
              .tuning(),
          Row::duration("handshake-timeout", kBoth, d.handshake_timeout, 1ms, 1h,
                        "for the handshake alone"),
          Row::number("max-handshakes", kListener, d.max_handshakes, 1, 1'000'000,
                      "at once; further connections wait in the backlog")
              .tuning(),
          Row::number(
              "handshake-threads", kBoth, d.handshake_threads, 0, 64,
              "of each loop and kind of tls, for the long steps of handshakes; 0: the loop's own"),
          Row::flag("ktls", kBoth, d.ktls,
                    "kernel TLS where there is TCP below and the kernel offers it"),
          Row::text("keylog", kBoth, "", "a file", "secrets for Wireshark; for debugging only")
              .of(kFile)
              .tuning()};
}

std::vector<Row> rows_of_both(const Settings& d) {
  return {Row::duration("connect-timeout", kConnecting, d.connect_timeout, 1ms, 24h,
                        "for both layers together"),
          Row::duration("linger", kBoth, d.linger, 0s, 1h, "for one layer after the other"),
          EndLinger::row("for each layer, from the loop's end on"), IdleTimeout::row()};
}

}  // namespace

const OptionTable& tls_options() {
  return ae::once([] {
    const Settings d;  // object that holds the defaults of all options
    return OptionTable(
        "tls",
        {{"Who we are, and whom we trust", trust_rows(d)},
         {"What is spoken", protocol_rows(d)},
         {"Sessions, limits, the rest", session_rows(d)},
         {"Of both layers", rows_of_both(d)}},
        {FormerOption::gone("tickets",
                            "leave it out, or give resumption=no to send no tickets at all")});
  });
}

Settings parse_settings(const Options& given) {
  OptionReader options(tls_options(), given);
  Settings s;
  s.identities = parse_identities(options);
  s.key_pass_file = options.text("key-pass-file");
  s.ca = options.text("ca");
  s.ca_dir = options.text("ca-dir");
  s.crl = options.text("crl");
  s.crl_check = options.pick("crl-check", kCrlCheck);
  require(options, "crl-check", "crl");
  s.reload = options.pick("reload", kReload);
  s.min_version = options.pick("min-version", kVersion);
  s.max_version = parse_max_version(options);
  if (s.max_version != 0 && s.max_version < s.min_version) {
    throw Error("option max-version=" + options.text("max-version") + ": it is below min-version");
  }
  s.ciphers = options.text("ciphers");
  s.ciphersuites = options.text("ciphersuites");
  s.groups = options.text("groups");
  s.dh_params = options.text("dh-params");
  s.prefer_server_ciphers = options.flag("prefer-server-ciphers");
  s.auth_clients = options.pick("auth-clients", kClientAuth);
  s.verify = options.pick("verify", kVerify);
  // Accepts the option server-name but ignores its value, which belongs to a connection and not to
  // a context: TlsType::peer_name() reads it.
  (void)options.text("server-name");
  s.alpn = parse_alpn(options);
  s.resumption = options.pick("resumption", kResumption);
  s.ticket_rotation = options.duration("ticket-rotation");
  s.session_timeout = options.duration("session-timeout");
  s.session_cache = static_cast<unsigned>(options.number("session-cache"));
  s.peer_user = options.pick("peer-user", kPeerUser);
  s.keylog = options.text("keylog");
  s.ktls = options.flag("ktls");
  s.handshake_timeout = options.duration("handshake-timeout");
  s.max_handshakes = static_cast<unsigned>(options.number("max-handshakes"));
  s.handshake_threads = static_cast<unsigned>(options.number("handshake-threads"));
  s.connect_timeout = options.duration("connect-timeout");
  s.linger = options.duration("linger");
  s.end_linger = options.duration("end-linger");
  s.idle_timeout = options.duration("idle-timeout");
  if (s.auth_clients != Settings::ClientAuth::kNo && s.ca.empty() && s.ca_dir.empty()) {
    throw Error("option auth-clients=" + options.word("auth-clients") +
                ": say whose certificates count, with ca=FILE or ca-dir=FOLDER");
  }
  options.finish();
  return s;
}

}}}  // namespace conn::tls
