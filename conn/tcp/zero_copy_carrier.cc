// SPDX-License-Identifier: BSD-3-Clause
// Zero-copy send() of a SocketCarrier. Memory lent to the kernel comes back with the completions
// or when the socket is closed. In the latter case the socket is reset, because the kernel would
// otherwise continue to read the memory.

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <new>

#include "conn/tcp/socket_carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

/// Returns whether the connection was reset with bytes unsent. The kernel then returns lent memory
/// although the peer has not acknowledged the bytes.
bool is_cut(int fd) noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return info.tcpi_state == TCP_CLOSE && unsent_bytes(fd) != 0;
}

}  // namespace

bool SocketCarrier::sends_in_place(const Outgoing& bytes) const noexcept {
  // Only with option linger: without it the kernel delivers output by itself after close(), and it
  // cannot do that from memory that belongs to the caller again.
  return settings_->zero_copy != 0 && bytes.bytes.size() >= settings_->zero_copy &&
         !(lending_ && lending_->given_up()) && settings_->linger > ae::Duration::zero();
}

ssize_t SocketCarrier::send(const Outgoing& bytes) {
  const bool goes_on = lending_ && lending_->goes_on();
  if (!goes_on) {
    bool begun = false;
    try {
      if (sends_in_place(bytes)) {
        if (!lending_) lending_ = std::make_unique<Lending>();
        const bool was_active = lending_->active();
        begun = lending_->begin(fd_.get());
        if (begun && !was_active) watch_aside();
      }
    } catch (const std::bad_alloc&) {
      // Without watch_aside() completions would not be noticed, so no memory is lent.
      if (lending_) lending_->give_up();
      if (lending_) (void)lending_->end_if_idle();
      begun = false;
    }
    if (!begun) {
      errno = EOPNOTSUPP;
      return -1;
    }
  }
  bool all_done = false;
  const ssize_t n = lending_->send(fd_.get(), bytes.bytes, all_done);
  if (n < 0) {
    const int err = errno;
    if (err != EAGAIN && err != EWOULDBLOCK) return failed(err, "write to ");
    errno = EAGAIN;
    return -1;
  }
  if (all_done) tell_done();
  return n;
}

/// Reads zero-copy completions and reports the references that are done. Returns true if there were
/// completions.
bool SocketCarrier::take_completions() noexcept {
  if (!lending_ || !lending_->take_completions(fd_.get())) return false;
  tell_done();
  return true;
}

void SocketCarrier::tell_done() noexcept {
  if (!lending_ || !lending_->active()) return;
  // the rest of a reference is never sent
  if (state() != State::kConnected || closing()) lending_->stop();
  if (const std::size_t count = lending_->take_done(); count != 0) {
    std::error_code why;
    if (is_cut(fd_.get()))
      why = host().failure().code ? host().failure().code
                                  : std::make_error_code(std::errc::connection_reset);
    host().references_done(count, why);
  }
  if (!lending_->end_if_idle()) return;
  try {
    if (side_ && side_->watched() != SocketEvents::kNothing && loop() != nullptr) watch_aside();
  } catch (const std::bad_alloc&) {  // does not happen: requesting fewer events needs no memory
  }
}

/// Returns whether the kernel still reads memory that the program lent it by send().
bool SocketCarrier::is_lent() noexcept {
  if (!lending_ || !lending_->active() || !fd_) return false;
  (void)take_completions();
  if (unsent_bytes(fd_.get()) == 0) lending_->acknowledged();  // the kernel never sends it again
  tell_done();
  return lending_->is_lent();
}

/// Closes the socket so that the kernel no longer reads lent memory. With `reset`, a tcp peer gets
/// a reset; a unix peer gets one only if input is unread here, since the kernel offers no other
/// way.
void SocketCarrier::close_socket(bool reset) noexcept {
  if (reset && fd_ && !peer_.is_unix() && !inherited()) reset_when_closed(fd_.get());
  if (is_lent() && lending_->is_ours()) reset_when_closed(fd_.get());
  fd_.reset();
}

}}}  // namespace conn::tcp
