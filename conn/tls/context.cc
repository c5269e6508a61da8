// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/context.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "ae/once.h"
#include "conn/error.h"
#include "conn/kit/descriptor.h"
#include "conn/tls/engine/engine.h"
#include "conn/tls/engine/files.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

// Default ciphers for TLS 1.2: only those with forward secrecy and authenticated encryption. DHE
// needs option dh-params.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20";
// A server's order of preference for TLS 1.3. AES-128 comes first because the key exchange, X25519
// or P-256, has the same strength: a longer key and SHA-384 in the handshake would only cost more.
constexpr const char* kCipherSuites =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

/// Runs `work`. Returns false if it threw an exception, which can only be std::bad_alloc. Used in
/// the callbacks of OpenSSL, because no exception may pass through OpenSSL's functions.
template <class Work>
bool without_throwing(Work work) noexcept {
  try {
    work();
    return true;
  } catch (...) {
    return false;
  }
}

int on_verified(int ok, X509_STORE_CTX* store) {
  if (ok != 1) {
    const int index = SSL_get_ex_data_X509_STORE_CTX_idx();
    const auto* ssl = static_cast<const SSL*>(X509_STORE_CTX_get_ex_data(store, index));
    without_throwing([&] { Engine::of(ssl).peer.on_bad_certificate(store); });
  }
  return ok;
}

void on_message(int outgoing, int, int content_type, const void* bytes, std::size_t size, SSL*,
                void* engine) {
  if (engine == nullptr || size == 0) return;
  const std::span message(static_cast<const unsigned char*>(bytes), size);
  static_cast<Engine*>(engine)->on_message(outgoing != 0, content_type, message);
}

/// Appends `line` to the key log in one write, so that it stays in one piece even if other
/// processes write to the file. If the file does not exist, creates one that only its owner may
/// access.
void append_key(const SSL* ssl, const char* line);

int index_of_context() {
  return ae::once([] { return SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr); });
}

const Context& context_of(const SSL_CTX* context) {
  return *static_cast<const Context*>(SSL_CTX_get_ex_data(context, index_of_context()));
}

void append_key(const SSL* ssl, const char* line) {
  const std::string& path = context_of(SSL_get_SSL_CTX(ssl)).settings().keylog;
  // The key log may be a pipe. With O_NONBLOCK, a handshake does not wait for the reader of the
  // pipe, and a pipe without a reader is not opened.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
  if (fd < 0) return;
  char newline = '\n';
  const std::array<iovec, 2> parts{iovec{const_cast<char*>(line), std::strlen(line)},
                                   iovec{&newline, 1}};
  (void)write_without_signal(fd, parts);
  ::close(fd);
}

std::string alpn_wire(const std::vector<std::string>& names) {
  std::string wire;
  for (const std::string& name : names) {
    wire += static_cast<char>(name.size());
    wire += name;
  }
  return wire;
}

/// Returns `name` in the form that SNI and certificates use: without the trailing dot of a fully
/// qualified name (RFC 6066, section 3).
std::string_view without_root(std::string_view name) {
  if (name.size() > 1 && name.ends_with('.')) name.remove_suffix(1);
  return name;
}

bool is_address(const std::string& name) {
  in6_addr address;
  const std::string digits = name.substr(0, name.find('%'));
  return inet_pton(AF_INET, digits.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, digits.c_str(), &address) == 1;
}

/// Returns the explanation, for an error message, of why OpenSSL does not know one of `groups`;
/// empty if there is none. OpenSSL knows the hybrids of a curve with ML-KEM, such as
/// X25519MLKEM768, from 3.5 on.
const char* why_unknown(const std::string& groups) {
  constexpr unsigned long kFirst = 0x30500000UL;
  const bool is_early = OpenSSL_version_num() < kFirst;
  return is_early && groups.find("MLKEM") != std::string::npos ? ": MLKEM needs OpenSSL 3.5" : "";
}

}  // namespace

// --- a server's state and the callbacks of OpenSSL -----------------------------------------------

struct Context::Server {
  explicit Server(const Settings& settings)
      : tickets(settings.ticket_rotation), alpn(alpn_wire(settings.alpn)) {}
  TicketKeys tickets;
  const std::string alpn;
  // session id context: digest of the certificates and of the CAs that the server trusts
  std::string id;
  // one OpenSSL context for each certificate; the first is the default
  std::vector<ContextPtr> contexts;
};

struct ServerCallbacks {
  static const Context::Server& of(SSL* ssl) { return *context_of(SSL_get_SSL_CTX(ssl)).server_; }

  /// Binds sessions to the server name that the client requests. A session must not be resumed
  /// under another name (RFC 6066, section 3), and OpenSSL looks up the session before it evaluates
  /// the name.
  static int bind_sessions(SSL* ssl, int*, void* argument) {
    const auto& server = *static_cast<const Context::Server*>(argument);
    std::string bound;
    const bool there = without_throwing([&] {
      bound = server.id;
      const unsigned char* name = nullptr;
      std::size_t size = 0;
      if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &name, &size) == 1) {
        bound.append(reinterpret_cast<const char*>(name), size);
      }
    });
    if (!there) return SSL_CLIENT_HELLO_ERROR;
    unsigned char id[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (EVP_Digest(bound.data(), bound.size(), id, &length, EVP_sha256(), nullptr) != 1 ||
        SSL_set_session_id_context(ssl, id, std::min<unsigned>(length, SSL_MAX_SID_CTX_LENGTH)) !=
            1) {
      return SSL_CLIENT_HELLO_ERROR;
    }
    return SSL_CLIENT_HELLO_SUCCESS;
  }

  /// Chooses the server's certificate by the name that the client requests (RFC 6066, section 3).
  static int choose(SSL* ssl, int*, void* argument) {
    const char* asked = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    if (asked == nullptr) return SSL_TLSEXT_ERR_NOACK;
    const std::string_view name = without_root(asked);
    const auto& server = *static_cast<const Context::Server*>(argument);
    for (const ContextPtr& context : server.contexts) {
      X509* certificate = SSL_CTX_get0_certificate(context.get());
      if (X509_check_host(certificate, name.data(), name.size(), 0, nullptr) != 1) continue;
      SSL_set_SSL_CTX(ssl, context.get());
      return SSL_TLSEXT_ERR_OK;
    }
    // No certificate has the name that the client requests: the default one is used, and the client
    // decides whether to accept it.
    return SSL_TLSEXT_ERR_NOACK;
  }

  /// Chooses the first ALPN protocol in the server's order that the client offers (RFC 7301,
  /// section 3.2).
  static int agree(SSL*, const unsigned char** out, unsigned char* size, const unsigned char* in,
                   unsigned in_size, void* argument) {
    const auto& server = *static_cast<const Context::Server*>(argument);
    unsigned char* chosen = nullptr;
    const int result = SSL_select_next_proto(
        &chosen, size, reinterpret_cast<const unsigned char*>(server.alpn.data()),
        static_cast<unsigned>(server.alpn.size()), in, in_size);
    *out = chosen;
    return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
  }

  static int ticket(SSL* ssl, unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher,
                    EVP_MAC_CTX* mac, int sealing) {
    TicketKeys& keys = const_cast<Context::Server&>(of(ssl)).tickets;
    if (sealing != 0) return keys.seal(name, iv, cipher, mac);
    const int opened = keys.open(name, iv, cipher, mac);
    // The result 2 makes OpenSSL send a fresh ticket: in TLS 1.3 no ticket should be used twice
    // (RFC 8446, appendix C.4).
    return opened == 1 && SSL_version(ssl) == TLS1_3_VERSION ? 2 : opened;
  }

  // Returns the time of the full handshake with which `session` began; the session stores it. It
  // limits for how long the session may be resumed: in TLS 1.3 each new ticket, or session number
  // sent in its place, has a new lifetime, so that a client that was checked once could otherwise
  // resume for ever.
  static std::optional<std::int64_t> birth_of(SSL_SESSION* session) {
    void* data = nullptr;
    std::size_t size = 0;
    std::int64_t birth = 0;
    if (SSL_SESSION_get0_ticket_appdata(session, &data, &size) != 1 || size != sizeof birth)
      return std::nullopt;
    std::memcpy(&birth, data, sizeof birth);
    return birth;
  }
  static int write_birth(SSL* ssl, void*) {
    SSL_SESSION* const session = SSL_get_session(ssl);
    // a resumed session already carries the time of its full handshake
    if (birth_of(session)) return 1;
    const std::int64_t now = std::time(nullptr);
    return SSL_SESSION_set1_ticket_appdata(session, &now, sizeof now);
  }
  static SSL_TICKET_RETURN check_birth(SSL* ssl, SSL_SESSION* session, const unsigned char*,
                                       std::size_t, SSL_TICKET_STATUS status, void*) {
    const bool renew = status == SSL_TICKET_SUCCESS_RENEW;
    if (status != SSL_TICKET_SUCCESS && !renew) return SSL_TICKET_RETURN_IGNORE_RENEW;
    const std::optional<std::int64_t> birth = birth_of(session);
    if (!birth || std::chrono::seconds(std::time(nullptr) - *birth) >
                      context_of(SSL_get_SSL_CTX(ssl)).settings().session_timeout) {
      return SSL_TICKET_RETURN_IGNORE_RENEW;
    }
    return renew ? SSL_TICKET_RETURN_USE_RENEW : SSL_TICKET_RETURN_USE;
  }
  /// Limits the time-out of a session in the cache to the rest of its lifetime. This is done when
  /// the server issues the session, because OpenSSL calls no callback before it uses a cached
  /// session.
  static int cut_life(SSL* ssl, void* argument) {
    if (write_birth(ssl, argument) != 1) return 0;
    SSL_SESSION* const session = SSL_get_session(ssl);
    const auto life = std::chrono::duration_cast<std::chrono::seconds>(
        context_of(SSL_get_SSL_CTX(ssl)).settings().session_timeout);
    const std::int64_t age = std::time(nullptr) - *birth_of(session);
    (void)SSL_SESSION_set_timeout(
        session, static_cast<long>(std::clamp<std::int64_t>(life.count() - age, 0, life.count())));
    return 1;
  }

  static int on_client_session(SSL* ssl, SSL_SESSION* session) {
    const Engine& engine = Engine::of(ssl);
    if (engine.session_name.empty()) return 0;
    SessionPtr owned(session);
    without_throwing([&] {
      context_of(SSL_get_SSL_CTX(ssl)).sessions_.put(engine.session_name, std::move(owned));
    });
    return 1;  // 1: OpenSSL passes ownership of `session` to this callback
  }
};

Context::Context(Settings settings, Secret pass_phrase, std::shared_ptr<TrustCache> trust)
    : settings_(std::move(settings)),
      stamps_(settings_.reload == Settings::Reload::kAuto ? FileStamps(files_of(settings_))
                                                          : FileStamps()),
      pass_phrase_(std::move(pass_phrase)),
      trust_(std::move(trust)) {}
Context::~Context() = default;

SSL_CTX* Context::server() const {
  const std::lock_guard lock(mutex_);
  if (!server_) {
    check_files();
    server_ = make_server();
    made_server_ = server_->contexts.front().get();
  }
  return made_server_;
}

SSL_CTX* Context::client() const {
  const std::lock_guard lock(mutex_);
  if (!client_) {
    check_files();
    client_ = make_client();
  }
  return client_.get();
}

/// To be called before files are read. With reload=auto, throws Error if one of them is neither a
/// file nor a folder: files that may be replaced at any time may have been replaced since the
/// options were set, and reading a pipe could block the loop.
void Context::check_files() const {
  if (settings_.reload == Settings::Reload::kAuto) FileStamps(files_of(settings_)).refuse_special();
}

void Context::load() const {
  if (!settings_.identities.empty()) (void)server();
  // The system's certificates take long to read, and no option can be wrong about them. So they are
  // not read here, but when a client needs them.
  if (!settings_.ca.empty() || !settings_.ca_dir.empty() || !settings_.crl.empty()) {
    (void)client();
  } else if (settings_.identities.empty()) {
    (void)make_base(TLS_client_method());  // throws Error for names that OpenSSL does not know
  }
}

// --- what the contexts of servers and clients have in common -------------------------------------

ContextPtr Context::make_base(const SSL_METHOD* method) const {
  // If OpenSSL has no memory to look up an algorithm, it reports no error, and the context lacks
  // that algorithm for ever. The only sign is that malloc(3) has set errno to ENOMEM. But malloc(3)
  // also sets errno if brk(2) fails and mmap(2) then provides the memory. So after ENOMEM a second
  // context is made while the first one keeps its memory; memory has run out only if that sets
  // ENOMEM, too.
  ContextPtr first, context;
  for (int left = 2; left != 0; --left) {
    ERR_clear_error();
    errno = 0;
    first = std::exchange(context, ContextPtr(SSL_CTX_new(method)));
    if (errno != ENOMEM) break;
    if (left == 1) throw std::bad_alloc();
  }
  if (!context ||
      SSL_CTX_set_ex_data(context.get(), index_of_context(), const_cast<Context*>(this)) != 1) {
    fail("make a TLS context");
  }
  SSL_CTX* const c = context.get();
  if (SSL_CTX_set_min_proto_version(c, settings_.min_version) != 1 ||
      SSL_CTX_set_max_proto_version(c, settings_.max_version) != 1) {
    fail("set the versions of TLS");
  }
  SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Kernel TLS is off by default here; it is enabled for single connections, on request.
  SSL_CTX_clear_options(c, SSL_OP_ENABLE_KTLS);
  if (settings_.prefer_server_ciphers) {
    SSL_CTX_set_options(c, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  }
  // The modes PARTIAL_WRITE and MOVING_WRITE_BUFFER give SSL_write() the semantics of write(2): it
  // may take a part of the bytes, and a retry may pass another buffer. Without AUTO_RETRY, OpenSSL
  // returns after a message that carries no data.
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_clear_mode(c, SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_read_ahead(c, 1);  // makes OpenSSL read a record's header and body by one system call
  SSL_CTX_set_msg_callback(c, on_message);
  const std::string& ciphers = settings_.ciphers;
  if (SSL_CTX_set_cipher_list(c, ciphers.empty() ? kCiphers : ciphers.c_str()) != 1) {
    ERR_clear_error();
    throw Error("option ciphers=" + ciphers + ": OpenSSL knows none of these for TLS 1.2");
  }
  if (!settings_.ciphersuites.empty() &&
      SSL_CTX_set_ciphersuites(c, settings_.ciphersuites.c_str()) != 1) {
    ERR_clear_error();
    throw Error("option ciphersuites=" + settings_.ciphersuites +
                ": OpenSSL does not know all of these for TLS 1.3");
  }
  if (!settings_.groups.empty() && SSL_CTX_set1_groups_list(c, settings_.groups.c_str()) != 1) {
    ERR_clear_error();
    throw Error("option groups=" + settings_.groups + ": OpenSSL " +
                OpenSSL_version(OPENSSL_VERSION_STRING) + " does not know all of these" +
                why_unknown(settings_.groups));
  }
  if (!settings_.keylog.empty()) SSL_CTX_set_keylog_callback(c, append_key);
  return context;
}

// --- the server's context ------------------------------------------------------------------------

std::unique_ptr<Context::Server> Context::make_server() const {
  if (settings_.identities.empty()) {
    throw Error("a TLS server needs a certificate and its key: give cert=FILE and key=FILE");
  }
  auto server = std::make_unique<Server>(settings_);
  EVP_MD_CTX* digest = EVP_MD_CTX_new();
  const std::unique_ptr<EVP_MD_CTX, FreeWith<EVP_MD_CTX_free>> owner(digest);
  if (digest == nullptr || EVP_DigestInit_ex(digest, EVP_sha256(), nullptr) != 1) {
    fail("make a TLS context");
  }
  for (const Settings::Identity& identity : settings_.identities) {
    ContextPtr context = make_base(TLS_server_method());
    SSL_CTX* const c = context.get();
    if (settings_.ciphersuites.empty() && SSL_CTX_set_ciphersuites(c, kCipherSuites) != 1)
      // ignores the error: an OpenSSL build that lacks these ciphers keeps its defaults
      ERR_clear_error();
    load_identity(c, identity);
    unsigned char print[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (X509_digest(SSL_CTX_get0_certificate(c), EVP_sha256(), print, &size) != 1 ||
        EVP_DigestUpdate(digest, print, size) != 1)
      fail("take the fingerprint of the certificate " + identity.cert);
    if (settings_.auth_clients != Settings::ClientAuth::kNo) {
      load_trust(c);
      int mode = SSL_VERIFY_PEER;
      if (settings_.auth_clients == Settings::ClientAuth::kRequired) {
        mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
      }
      SSL_CTX_set_verify(c, mode, on_verified);
      if (!settings_.ca.empty()) {
        SSL_CTX_set_client_CA_list(c, SSL_load_client_CA_file(settings_.ca.c_str()));
      }
    }
    load_dh_params(c);
    SSL_CTX_set_client_hello_cb(c, ServerCallbacks::bind_sessions, server.get());
    SSL_CTX_set_tlsext_servername_callback(c, ServerCallbacks::choose);
    SSL_CTX_set_tlsext_servername_arg(c, server.get());
    if (!settings_.alpn.empty())
      SSL_CTX_set_alpn_select_cb(c, ServerCallbacks::agree, server.get());
    set_resumption(c);
    server->contexts.push_back(std::move(context));
  }
  // The session id context also depends on whom the server trusts. So sessions of a context with
  // other certificates or other trust are not resumed: what was checked then may no longer hold.
  unsigned char id[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (EVP_DigestUpdate(digest, &settings_.auth_clients, sizeof settings_.auth_clients) != 1 ||
      EVP_DigestUpdate(digest, settings_.ca.data(), settings_.ca.size()) != 1 ||
      EVP_DigestUpdate(digest, settings_.ca_dir.data(), settings_.ca_dir.size()) != 1 ||
      EVP_DigestFinal_ex(digest, id, &size) != 1)
    fail("make a TLS context");
  server->id.assign(reinterpret_cast<const char*>(id), size);
  return server;
}

void Context::load_dh_params(SSL_CTX* context) const {
  if (settings_.dh_params.empty()) return;
  const BioPtr file = open_file(settings_.dh_params, "the DH parameters");
  KeyPtr params(PEM_read_bio_Parameters(file.get(), nullptr));
  if (!params) {
    ERR_clear_error();
    throw Error("the DH parameters " + settings_.dh_params + " are not in PEM form");
  }
  if (SSL_CTX_set0_tmp_dh_pkey(context, params.get()) != 1) {
    fail("the DH parameters " + settings_.dh_params + " cannot be used");
  }
  (void)params.release();
}

void Context::set_resumption(SSL_CTX* context) const {
  // Number of tickets that a server sends after a TLS 1.3 handshake; a client keeps only the
  // newest.
  constexpr std::size_t kTickets = 1;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(settings_.session_timeout).count();
  SSL_CTX_set_timeout(context, static_cast<long>(seconds));
  switch (settings_.resumption) {
    case Settings::Resumption::kNo:
      SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
      SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
      SSL_CTX_set_num_tickets(context, 0);
      break;
    case Settings::Resumption::kTickets:
      SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
      SSL_CTX_set_tlsext_ticket_key_evp_cb(context, ServerCallbacks::ticket);
      SSL_CTX_set_session_ticket_cb(context, ServerCallbacks::write_birth,
                                    ServerCallbacks::check_birth, nullptr);
      SSL_CTX_set_num_tickets(context, kTickets);
      break;
    case Settings::Resumption::kCache:
      // With SSL_OP_NO_TICKET, TLS 1.3 sends the number of a cached session in place of a ticket.
      SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
      SSL_CTX_set_session_ticket_cb(context, ServerCallbacks::cut_life, nullptr, nullptr);
      SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_SERVER);
      SSL_CTX_sess_set_cache_size(context, static_cast<long>(settings_.session_cache));
      SSL_CTX_set_num_tickets(context, kTickets);
      break;
  }
}

// --- the client's context ------------------------------------------------------------------------

ContextPtr Context::make_client() const {
  ContextPtr context = make_base(TLS_client_method());
  SSL_CTX* const c = context.get();
  if (!settings_.identities.empty()) load_identity(c, settings_.identities.front());
  if (settings_.verify != Settings::Verify::kNo) {
    load_trust(c);
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER, on_verified);
  }
  if (!settings_.alpn.empty()) {
    const std::string wire = alpn_wire(settings_.alpn);
    if (SSL_CTX_set_alpn_protos(c, reinterpret_cast<const unsigned char*>(wire.data()),
                                static_cast<unsigned>(wire.size())) != 0) {
      fail("set the ALPN protocols");
    }
  }
  if (settings_.resumption != Settings::Resumption::kNo) {
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(c, ServerCallbacks::on_client_session);
  } else {
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  }
  return context;
}

void Context::prepare_client(Engine& engine, const std::string& name,
                             const std::string& peer) const {
  SSL* const ssl = engine.ssl();
  const std::string wanted(without_root(name));
  // If the name began with a dot, OpenSSL would accept any subdomain, so such a name is refused.
  if (wanted.starts_with('.')) throw Error("\"" + wanted + "\" is no host's name");
  engine.peer.wanted_name = wanted;
  const bool address = is_address(wanted);
  // SNI may carry host names only, not IP addresses (RFC 6066, section 3).
  if (!wanted.empty() && !address) {
    if (wanted.size() > TLSEXT_MAXLEN_host_name)
      throw Error("\"" + wanted + "\" cannot be sent as the server's name: it has more than " +
                  std::to_string(TLSEXT_MAXLEN_host_name) + " bytes");
    if (SSL_set_tlsext_host_name(ssl, wanted.c_str()) != 1) fail("set the server's name");
  }
  if (settings_.verify == Settings::Verify::kFull) {
    X509_VERIFY_PARAM* const param = SSL_get0_param(ssl);
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    const int set =
        address ? X509_VERIFY_PARAM_set1_ip_asc(param, wanted.substr(0, wanted.find('%')).c_str())
                : X509_VERIFY_PARAM_set1_host(param, wanted.data(), wanted.size());
    if (set != 1 || wanted.empty()) {
      throw Error("check the certificate against \"" + wanted + "\": give server-name=NAME");
    }
  }
  if (settings_.resumption == Settings::Resumption::kNo) return;
  engine.session_name = peer + '|' + wanted;
  if (const SessionPtr session = sessions_.take(engine.session_name)) {
    SSL_set_session(ssl, session.get());
  }
}

}}}  // namespace conn::tls
