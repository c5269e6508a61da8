// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The facts of a TLS connection. The engine knows the TLS version, ciphers and certificates; the
// connection below knows the addresses.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/spi/carrier.h"
#include "conn/tls/engine/engine.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Returns TLS version, cipher, group, resumption, names, kernel TLS and the expiry times of both
/// certificates, for Connection::info().
std::vector<std::pair<std::string, std::string>> facts_of(const Engine& engine);
/// Returns TLS version, cipher, group and kernel TLS of a connection in one line, for
/// Connection::path().
std::string path_of(const Engine& engine);

class Session;

/// The facts of a TLS connection. Those that the connection below knows are empty before it exists
/// and after it is closed.
class TlsFacts final : public CarrierFacts {
 public:
  /// `session` must be the session of `carrier`.
  TlsFacts(const CarrierBase& carrier, const Session& session) noexcept
      : carrier_(carrier), session_(session) {}

  std::string local_address() const override;
  std::string peer_address() const override;
  SocketAddress local_sockaddr() const noexcept override;
  SocketAddress peer_sockaddr() const noexcept override;
  std::optional<bool> is_local() const override;
  int fd() const noexcept override;
  std::string path() const override;
  std::vector<std::pair<std::string, std::string>> info() const override;
  std::string peer_certificate() const override;
  std::string peer_user() const override;
  std::optional<PeerCredentials> peer_credentials() const override;

 private:
  const CarrierFacts* below() const noexcept;

  const CarrierBase& carrier_;
  const Session& session_;
};

}}}  // namespace conn::tls
