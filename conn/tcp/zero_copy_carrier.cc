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

bool SocketCarrier::sends_in_place(const Outgoing& bytes) const noexcept {
  // Without linger the kernel delivers by itself after close(). It cannot do that from memory that
  // belongs to the caller again.
  return settings_->zero_copy != 0 && bytes.bytes.size() >= settings_->zero_copy &&
         !no_zero_copy_ && settings_->linger > ae::Duration::zero();
}

bool SocketCarrier::begin_zero_copy() noexcept {
  if (ledger() != nullptr) return true;
  try {
    if (!side_) side_ = std::make_unique<Side>(*this);
    if (allow_zero_copy(fd_.get())) {
      side_->ledger = std::make_unique<ZeroCopyLedger>();
      side_->owner = getpid();
      watch_aside();
      return true;
    }
  } catch (const std::bad_alloc&) {  // completions would not be noticed
    if (side_) side_->ledger.reset();
  }
  no_zero_copy_ = true;
  return false;
}

ssize_t SocketCarrier::send(const Outgoing& bytes) {
  const bool goes_on = ledger() != nullptr && ledger()->open();
  if (!goes_on && (!sends_in_place(bytes) || !begin_zero_copy())) {
    errno = EOPNOTSUPP;
    return -1;
  }
  ZeroCopyLedger& ledger = *side_->ledger;
  ssize_t n;
  bool lent;
  do {
    lent = !no_zero_copy_ && ledger.has_room();
    const int flags = MSG_NOSIGNAL | (lent ? MSG_ZEROCOPY : 0);
    n = ::send(fd_.get(), bytes.bytes.data(), bytes.bytes.size(), flags);
    if (n < 0 && lent && errno == ENOBUFS) {  // net.core.optmem_max, or RLIMIT_MEMLOCK
      no_zero_copy_ = true;
      errno = EINTR;
    }
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    const int err = errno;
    if (err != EAGAIN && err != EWOULDBLOCK) return failed(err, "write to ");
    errno = EAGAIN;
    return -1;
  }
  if (!goes_on) ledger.begin();
  if (lent) ledger.sent();
  if (static_cast<std::size_t>(n) == bytes.bytes.size()) {
    ledger.finish();
    if (!ledger.under_way()) tell_done();
  }
  return n;
}

/// Reads completions; true if there were any.
bool SocketCarrier::take_completions() noexcept {
  if (ledger() == nullptr || !ledger()->under_way() || side_->owner != getpid()) return false;
  const ZeroCopyNews news = read_completions(fd_.get(), *ledger());
  if (news.copied) no_zero_copy_ = true;
  if (!news.any) return false;
  side_->had_completions = true;
  tell_done();
  return true;
}

void SocketCarrier::tell_done() noexcept {
  if (ledger() == nullptr) return;
  if (state() != State::kConnected || closing()) ledger()->finish();  // the rest is never sent
  if (const std::size_t count = ledger()->take_done(); count != 0)
    host().references_done(count, why_given_back());
  if (!no_zero_copy_ || ledger()->waits()) return;
  side_->ledger.reset();
  try {
    if (side_->watched() != SocketEvents::kNothing && loop() != nullptr) watch_aside();
  } catch (const std::bad_alloc&) {  // fewer events are requested: that needs no memory
  }
}

/// The error for released references. On a reset the kernel also returns lent memory, although the
/// peer has not acknowledged the bytes.
std::error_code SocketCarrier::why_given_back() const noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (!fd_ || getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  if (info.tcpi_state != TCP_CLOSE || unsent_bytes(fd_.get()) == 0) return {};
  return host().failure().code ? host().failure().code
                               : std::make_error_code(std::errc::connection_reset);
}

/// Whether the kernel still reads lent memory.
bool SocketCarrier::is_lent() noexcept {
  if (ledger() == nullptr || !fd_) return false;
  (void)take_completions();
  if (ledger() != nullptr && side_->owner == getpid() && unsent_bytes(fd_.get()) == 0)
    ledger()->complete_all();  // the peer has acknowledged it: it is not sent again
  tell_done();
  return ledger() != nullptr && ledger()->under_way();
}

/// Closes the socket so that the kernel no longer reads lent memory.
void SocketCarrier::take_back() noexcept {
  if (is_lent() && side_->owner == getpid()) reset_when_closed(fd_.get());
  fd_.reset();
}

}}}  // namespace conn::tcp
