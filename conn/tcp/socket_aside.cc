// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_aside.h"

#include <poll.h>
#include <sys/socket.h>

#include <new>
#include <system_error>
#include <utility>

#include "conn/tcp/socket_carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

void SocketAside::watch() {
  CarrierHost& host = carrier_.host();
  unsigned what = host.wants_close() ? SocketEvents::kPeerGone : SocketEvents::kNothing;
  if (sender_.active()) what |= SocketEvents::kErrors;
  SocketEvents::watch(*host.loop(), *this, socket_.fd(), what);
}

void SocketAside::on_socket_event(bool peer_gone, bool error) noexcept {
  (void)take_completions();
  CarrierHost& host = carrier_.host();
  if (peer_gone) host.peer_gone();
  if (!error || (host.state() != State::kConnected && host.state() != State::kClosed)) return;
  int err = 0;
  socklen_t size = sizeof err;
  if (getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &err, &size) != 0 || err == 0) return;
  // Reading SO_ERROR has cleared the error, so it must be reported here: no later call finds it.
  (void)carrier_.failed(err, "connection to ");
}

bool SocketAside::begin() noexcept {
  try {
    const bool was_active = sender_.active();
    const bool begun = sender_.begin(socket_.fd());
    if (begun && !was_active) watch();
    return begun;
  } catch (const std::bad_alloc&) {
    // There is no memory for watch(). Without it the kernel's zero-copy completions would go
    // unnoticed, so send() must copy.
    sender_.give_up();
    (void)sender_.end_if_idle();
    return false;
  }
}

ssize_t SocketAside::send(std::span<const std::byte> bytes) noexcept {
  bool all_done = false;
  const ssize_t n = sender_.send(socket_.fd(), bytes, all_done);
  if (all_done) tell_done();
  return n;
}

bool SocketAside::take_completions() noexcept {
  if (!sender_.take_completions(socket_.fd())) return false;
  tell_done();
  return true;
}

void SocketAside::tell_done() noexcept {
  if (!sender_.active()) return;
  CarrierHost& host = carrier_.host();
  // if a piece of memory was sent in part, the rest of it will never be sent
  if (host.state() != State::kConnected || host.closing()) sender_.stop();
  if (const std::size_t count = sender_.take_done(); count != 0) {
    std::error_code why;
    if (is_cut(socket_.fd()))
      why = host.failure().code ? host.failure().code
                                : std::make_error_code(std::errc::connection_reset);
    host.references_done(count, why);
  }
  if (!sender_.end_if_idle()) return;
  try {
    if (watched() != SocketEvents::kNothing && host.loop() != nullptr) watch();
  } catch (const std::bad_alloc&) {  // cannot happen: requesting fewer events needs no memory
  }
}

bool SocketAside::is_ready(short event) noexcept {
  (void)take_completions();
  if (!sender_.had_completions()) return true;
  pollfd entry{socket_.fd(), event, 0};
  return ::poll(&entry, 1, 0) != 0;
}

bool SocketAside::is_lent() noexcept {
  if (!sender_.active() || socket_.fd() < 0) return false;
  (void)take_completions();
  // the peer has acknowledged all bytes, so the kernel never sends them again
  if (unsent_bytes(socket_.fd()) == 0) sender_.acknowledged();
  tell_done();
  return sender_.is_lent();
}

void SocketAside::linger(ae::Duration limit, Linger::Done done) {
  linger_ = std::make_unique<Linger>(*carrier_.host().loop(), socket_.fd(), limit, lent_memory(),
                                     std::move(done));
  linger_->start();
}

}}}  // namespace conn::tcp
