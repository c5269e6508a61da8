// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/session.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "conn/kit/interruption.h"
#include "conn/tls/gather.h"
#include "conn/tls/loop_state.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

/// Returns whether `fd` is a TCP socket, since kernel TLS works on TCP sockets only.
bool is_tcp_socket(int fd) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
         protocol == IPPROTO_TCP;
}

// Carrier::wait_for() waits for one direction only. If both are needed, wait() waits for each
// direction in turn for this long.
constexpr ae::Duration kTurn = std::chrono::milliseconds(1);

/// Blocks until the Carrier can read or write, as requested, at most until `deadline`. If both are
/// requested, waits for each in turn for a short time, so it may return early.
void wait(Carrier& carrier, bool reading, bool writing, ae::TimePoint deadline) {
  if (!reading || !writing) {
    carrier.wait_for(reading ? ae::kReadable : ae::kWritable, deadline);
    return;
  }
  const ae::TimePoint soon = std::min(deadline, std::chrono::steady_clock::now() + kTurn);
  carrier.wait_for(ae::kReadable, soon);
  carrier.wait_for(ae::kWritable, std::min(deadline, std::chrono::steady_clock::now() + kTurn));
}

}  // namespace

void Session::take(ConnectionPtr below, std::shared_ptr<const Context> context) {
  context_ = std::move(context);
  below_.take(std::move(below));
}

void Session::make_engine(Role role, const std::string& peer_name) {
  SSL_CTX* const context = role == Role::kServer ? context_->server() : context_->client();
  const int socket = settings().ktls && is_tcp_socket(below_.carrier().facts().fd())
                         ? below_.carrier().facts().fd()
                         : -1;
  engine_ = std::make_unique<Engine>(context, role, below_, socket);
  if (role == Role::kServer) engine_->hold_last_flight();
  if (role == Role::kClient)
    context_->prepare_client(*engine_, peer_name, below_.carrier().facts().peer_address());
}

void Session::give_secret() noexcept {
  constexpr std::string_view kLabel = "EXPORTER-aeconn-resume";
  std::array<unsigned char, 16> secret{};
  Carrier* const below = below_.open();
  if (below == nullptr ||
      SSL_export_keying_material(engine_->ssl(), secret.data(), secret.size(), kLabel.data(),
                                 kLabel.size(), nullptr, 0, 0) != 1)
    return;
  // The end that receives the last message of the handshake knows that the peer has completed the
  // handshake. The client sends that message in TLS 1.3 (RFC 8446, section 2), and in TLS 1.2 if a
  // session is resumed (RFC 5246, section 7.3).
  const SSL* const ssl = engine_->ssl();
  const bool client_sends_last = SSL_version(ssl) >= TLS1_3_VERSION || SSL_session_reused(ssl) == 1;
  below->take_secret(std::as_bytes(std::span(secret)),
                     client_sends_last == (SSL_is_server(ssl) == 1));
  OPENSSL_cleanse(secret.data(), secret.size());
}

ssize_t Session::write(const void* buffer, std::size_t size, LoopState& shared) {
  const char* const bytes = static_cast<const char*>(buffer);
  if (!engine_->kernel().sends())
    return size <= Engine::kRecord ? encrypt(*engine_, bytes, size)
                                   : encrypt_large(*engine_, bytes, size, shared.room());
  const iovec vector{const_cast<void*>(buffer), size};
  return write(&vector, 1, shared);
}

ssize_t Session::write(const iovec* vectors, int count, LoopState& shared) {
  if (!engine_->kernel().sends()) {
    if (count == 1) return write(vectors->iov_base, vectors->iov_len, shared);
    return encrypt_gathered(*engine_, vectors, count, shared.scratch(),
                            shared.counters.bytes_gathered, shared.room());
  }
  if (!engine_->flush()) {
    errno = EAGAIN;
    return -1;
  }
  const ssize_t n = below_.write_plain(vectors, count);
  if (n > 0) engine_->peer.count_data(static_cast<std::size_t>(n));
  if (n < 0 && errno != EAGAIN) {
    const int err = errno;
    engine_->on_wire_failure();
    errno = err;
  }
  return n;
}

bool Session::ready_to_read() {
  if (!engine_->only_maybe()) return true;
  return !stalled() && engine_->look(true) && !engine_->only_maybe();
}

ae::Mask Session::wanted(bool reads, bool writes) const {
  ae::Mask wanted = ae::kNone;
  if (reads && engine_->output().unsent() < Engine::kMostUnsent) wanted = wanted | ae::kReadable;
  if (engine_->output().unsent() > 0 || (below_.full() && writes)) wanted = wanted | ae::kWritable;
  return wanted;
}

bool Session::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  const auto satisfied = [&] {
    const bool flushed = engine_->flush();
    if (direction == ae::kReadable) return !stalled() && engine_->look(true);
    if (engine_->write_needs_read()) (void)engine_->look(true);
    return flushed && !below_.full() && !engine_->write_needs_read();
  };
  bool ready;
  while (!(ready = satisfied()) && !engine_->failed()) {
    const bool last = Interruption::ends() || std::chrono::steady_clock::now() >= deadline;
    const bool reading = direction == ae::kReadable || engine_->write_needs_read();
    wait(below_.carrier(), reading, !all_sent(), deadline);
    below_.try_again();
    if (last) {
      ready = satisfied();
      break;
    }
  }
  return ready || engine_->failed();
}

bool Session::flush(ae::TimePoint until) {
  while (!engine_->flush()) {
    if (Interruption::ends() || std::chrono::steady_clock::now() >= until) break;
    below_.carrier().wait_for(ae::kWritable, until);
  }
  return engine_->output().unsent() == 0;
}

const Failure* Session::why_below() const noexcept {
  if (!engine_->wire_failed()) return nullptr;
  const Failure& why = below_.carrier().why_ended();
  return why ? &why : nullptr;
}

Failure Session::why_failed(const char* what) const noexcept {
  const Failure& own = engine_->failure();
  const Failure* const below = why_below();
  const bool is_below = below != nullptr && own.code != Errc::kTruncated;
  Failure why = out_of_memory();
  why.code = is_below ? below->code : own.code;
  try {
    why = is_below
              ? *below
              : Failure(own.code, what + below_.carrier().facts().peer_address() + ": " + own.text);
  } catch (const std::bad_alloc&) {
    // if memory runs out, only the failure's text is lost; its code is set
  }
  return why;
}

}}}  // namespace conn::tls
