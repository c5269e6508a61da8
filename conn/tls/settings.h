// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options of TLS, parsed once per set of options. The member initializers are the defaults;
// names, ranges and documentation texts are in settings.cc. docs/options.md explains each option.

#include <openssl/ssl.h>

#include <chrono>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/kit/defaults.h"
#include "conn/kit/end_linger.h"
#include "conn/kit/idle_timeout.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

struct Settings {
  struct Identity {
    /// Names of PEM files: the certificate with its chain, and its private key.
    std::string cert, key;
  };
  enum class ClientAuth { kNo, kOptional, kRequired };
  /// What a client verifies of the server: nothing; the certificate chain; the chain and the name.
  enum class Verify { kNo, kChain, kFull };
  enum class CrlCheck { kLeaf, kChain };
  enum class Resumption { kNo, kTickets, kCache };
  enum class Reload { kNo, kAuto };
  enum class PeerUser { kNo, kCommonName, kUri, kDns, kEmail };

  /// The certificates of this end, with their keys. A client uses the first. A server chooses by
  /// the name that the client requests, and uses the first if it has no certificate for that name.
  std::vector<Identity> identities;
  std::string key_pass_file;
  std::string ca, ca_dir, crl;
  CrlCheck crl_check = CrlCheck::kLeaf;
  Reload reload = Reload::kNo;
  /// Lowest and highest TLS version allowed, as OpenSSL's version numbers. max_version 0: the
  /// newest.
  int min_version = TLS1_2_VERSION, max_version = 0;
  std::string ciphers, ciphersuites, groups, dh_params;
  bool prefer_server_ciphers = true;
  ClientAuth auth_clients = ClientAuth::kNo;
  Verify verify = Verify::kFull;
  std::vector<std::string> alpn;
  Resumption resumption = Resumption::kTickets;
  ae::Duration ticket_rotation = std::chrono::hours(1);
  ae::Duration session_timeout = std::chrono::minutes(5);
  /// Maximum number of sessions that a server keeps with Resumption::kCache.
  unsigned session_cache = 20480;
  PeerUser peer_user = PeerUser::kCommonName;
  std::string keylog;
  bool ktls = false;
  ae::Duration handshake_timeout = std::chrono::seconds(10);
  unsigned max_handshakes = 512;
  unsigned handshake_threads = 0;  ///< number of threads per loop that run steps of handshakes
  // Options that also apply to the layer below TLS.
  /// Time limit for connecting both layers, TLS and the one below.
  ae::Duration connect_timeout = defaults::kConnectTimeout;
  ae::Duration linger = defaults::kLinger;
  ae::Duration end_linger = EndLinger::kDefault;
  ae::Duration idle_timeout = IdleTimeout::kDefault;
};

/// Returns the settings that `options` describe, ignoring keys that are not TLS options. Throws
/// Error for a bad value.
Settings parse_settings(const Options& options);
/// Returns the table of options that parse_settings() accepts, including those that TLS shares with
/// the layer below.
const OptionTable& tls_options();

/// Returns whether the option `key` belongs to both TLS and the layer below.
bool is_of_both(std::string_view key) noexcept;

/// Options of a connection, separated into those of TLS and those of the transport below it. An
/// option that both have is in both parts.
struct SplitOptions {
  Options tls, below;
};
SplitOptions split_options(const Options& options);

}}}  // namespace conn::tls
