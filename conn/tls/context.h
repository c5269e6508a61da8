// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The OpenSSL contexts made from one set of options, for both roles, with the certificates, keys
// and trust that the options name. A Context is constant once made. Connections share it and keep
// it alive, so a reload does not affect them.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/tls/engine/openssl.h"
#include "conn/tls/engine/secret.h"
#include "conn/tls/file_stamps.h"
#include "conn/tls/session_store.h"
#include "conn/tls/settings.h"
#include "conn/tls/ticket_keys.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Engine;

/// Keeps trusted certificates and revocation lists as they were read from files, so that contexts
/// whose options name the same files share them. May be used from any thread.
class TrustCache {
 public:
  /// Returns the certificate store kept under `name` if a context still uses it, else null.
  std::shared_ptr<X509_STORE> find(const std::string& name);
  void keep(const std::string& name, const std::shared_ptr<X509_STORE>& store);

 private:
  ae::Mutex mutex_;
  std::map<std::string, std::weak_ptr<X509_STORE>> stores_;
};

class Context {
 public:
  /// Keeps the options; files are read only when server(), client() or load() is called.
  Context(Settings settings, Secret pass_phrase,
          std::shared_ptr<TrustCache> trust = std::make_shared<TrustCache>());
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  const Settings& settings() const noexcept { return settings_; }
  /// Returns, with reload=auto, the state that the files had before they were read; otherwise an
  /// object without files.
  const FileStamps& stamps() const noexcept { return stamps_; }
  // Return the OpenSSL context of each role. It is made, and its files are read, at the first call.
  // If that fails, the call throws Error; a later call tries again. May be called from any thread.
  SSL_CTX* server() const;
  SSL_CTX* client() const;
  /// Returns the OpenSSL context that server() has made; null if it has made none yet. Does not
  /// wait while another thread reads files.
  SSL_CTX* made_server() const noexcept { return made_server_; }
  /// Returns the earliest expiry time of the certificates that this end presents, including
  /// intermediate ones, in seconds since 1970; 0 if none has been loaded. May be called from any
  /// thread.
  std::int64_t certificates_end() const noexcept { return ends_; }
  /// Makes the server's or client's OpenSSL context now if the options name files for it, and
  /// checks the names of ciphers and groups, so that mistakes in the options are found early.
  void load() const;

  /// Sets what a client sends and checks: SNI and the name in the certificate (`name`), and a
  /// session to resume. `peer` distinguishes servers that share a name.
  void prepare_client(Engine& engine, const std::string& name, const std::string& peer) const;

 private:
  struct Server;
  friend struct ServerCallbacks;
  ContextPtr make_base(const SSL_METHOD* method) const;
  void load_identity(SSL_CTX* context, const Settings::Identity& identity) const;
  void load_trust(SSL_CTX* context) const;
  void read_trust(SSL_CTX* context) const;
  void load_revocations(SSL_CTX* context) const;
  void load_dh_params(SSL_CTX* context) const;
  void set_resumption(SSL_CTX* context) const;
  std::unique_ptr<Server> make_server() const;
  ContextPtr make_client() const;
  void check_files() const;

  const Settings settings_;
  const FileStamps stamps_;
  const Secret pass_phrase_;
  const std::shared_ptr<TrustCache> trust_;
  mutable std::atomic<std::int64_t> ends_{0};
  mutable ae::Mutex mutex_;
  // The certificate store of this context. This reference keeps the store, so that other contexts
  // find it in trust_, whose own references are weak.
  mutable std::shared_ptr<X509_STORE> trusted_;
  mutable std::unique_ptr<Server> server_;
  mutable std::atomic<SSL_CTX*> made_server_{nullptr};
  mutable ContextPtr client_;
  mutable SessionStore sessions_;
};

}}}  // namespace conn::tls
