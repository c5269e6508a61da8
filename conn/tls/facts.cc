// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/facts.h"

#include <array>
#include <ctime>

#include "conn/kit/resolver.h"
#include "conn/tls/engine/openssl.h"
#include "conn/tls/peer_user.h"
#include "conn/tls/session.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

// Returns a time as in "2027-01-31T12:00:00Z" (RFC 3339).
std::string utc(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm when{};
  std::array<char, 32> text{};
  if (::gmtime_r(&time, &when) == nullptr) return {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &when)};
}

}  // namespace

namespace {

/// Returns the group of the key exchange, as "x25519"; null if there was none (DHE of TLS 1.2).
const char* group_of(SSL* ssl) {
  return SSL_group_to_name(ssl, static_cast<int>(SSL_get_negotiated_group(ssl)));
}

/// Whether a connection in this state is established.
bool is_open(State state) noexcept { return state == State::kConnected || state == State::kClosed; }

}  // namespace

std::vector<std::pair<std::string, std::string>> facts_of(const Engine& engine) {
  std::vector<std::pair<std::string, std::string>> facts;
  const auto add = [&](const char* key, const char* value) {
    if (value != nullptr && *value != '\0') facts.emplace_back(key, printable(value));
  };
  SSL* const ssl = engine.ssl();
  add("tls", SSL_get_version(ssl));
  add("cipher", SSL_get_cipher_name(ssl));
  add("group", group_of(ssl));
  add("resumed", SSL_session_reused(ssl) == 1 ? "yes" : "no");
  add("server-name", SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name));
  const unsigned char* alpn = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl, &alpn, &size);
  add("alpn", std::string(reinterpret_cast<const char*>(alpn), size).c_str());
  add("ktls", engine.kernel().sends()      ? engine.kernel().receives() ? "send,receive" : "send"
              : engine.kernel().receives() ? "receive"
                                           : "no");
  const auto add_end = [&](const char* key, const X509* certificate) {
    if (const std::int64_t end = end_of(certificate); end != 0) add(key, utc(end).c_str());
  };
  add_end("certificate-ends", SSL_get_certificate(ssl));
  const X509* const peer = SSL_get0_peer_certificate(ssl);
  add_end("peer-certificate-ends", peer);
  // If certificates are verified, there is a connection only if that has succeeded.
  if (peer != nullptr) add("verified", SSL_get_verify_mode(ssl) == SSL_VERIFY_NONE ? "no" : "yes");
  return facts;
}

std::string path_of(const Engine& engine) {
  SSL* const ssl = engine.ssl();
  const KernelTls& kernel = engine.kernel();
  std::string line = "tls";
  line.append(" ").append(SSL_get_version(ssl)).append(" ").append(SSL_get_cipher_name(ssl));
  if (const char* const group = group_of(ssl)) line.append(" ").append(group);
  if (kernel.works()) line.append(" ktls");
  if (kernel.sends() != kernel.receives()) line.append(kernel.sends() ? " send" : " receive");
  return line;
}

// --- the facts of a connection -------------------------------------------------------------------

/// The facts of the connection below TLS; null: there is none, or it is closed.
const CarrierFacts* TlsFacts::below() const noexcept {
  const Carrier* const carrier = session_.below().open();
  return carrier != nullptr ? &carrier->facts() : nullptr;
}

std::string TlsFacts::local_address() const {
  return below() != nullptr ? below()->local_address() : "";
}

std::string TlsFacts::peer_address() const {
  return below() != nullptr ? below()->peer_address() : "";
}

SocketAddress TlsFacts::local_sockaddr() const noexcept {
  return below() != nullptr ? below()->local_sockaddr() : SocketAddress{};
}

SocketAddress TlsFacts::peer_sockaddr() const noexcept {
  return below() != nullptr ? below()->peer_sockaddr() : SocketAddress{};
}

std::optional<bool> TlsFacts::is_local() const {
  return below() != nullptr ? below()->is_local() : std::nullopt;
}

int TlsFacts::fd() const noexcept { return below() != nullptr ? below()->fd() : -1; }

std::optional<PeerCredentials> TlsFacts::peer_credentials() const {
  return below() != nullptr ? below()->peer_credentials() : std::nullopt;
}

std::vector<std::pair<std::string, std::string>> TlsFacts::info() const {
  std::vector<std::pair<std::string, std::string>> facts;
  if (session_.begun() && is_open(carrier_.host().state())) facts = facts_of(session_.engine());
  if (session_.below().open() != nullptr) {
    for (auto& fact : session_.below().info_and_origin()) facts.push_back(std::move(fact));
  }
  return facts;
}

std::string TlsFacts::path() const {
  std::string line = session_.begun() ? path_of(session_.engine()) : "tls";
  if (session_.below().open() != nullptr)
    line.append(" over ").append(session_.below().path_and_origin());
  return line;
}

std::string TlsFacts::peer_certificate() const {
  X509* const certificate =
      session_.begun() ? SSL_get0_peer_certificate(session_.engine().ssl()) : nullptr;
  return certificate == nullptr ? std::string() : to_pem(certificate);
}

std::string TlsFacts::peer_user() const {
  if (!session_.begun() || !session_.engine().progress().established()) return {};
  return peer_user_of(session_.engine().ssl(), session_.settings().peer_user);
}

}}}  // namespace conn::tls
