// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/linger.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "conn/kit/descriptor.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

using namespace std::chrono_literals;

// No event reports that the peer has received everything, so the number of unsent bytes is checked
// at intervals: kLook in deliver(), which blocks. A Linger, which does not block, begins with
// kFirstLook and doubles the interval up to kLastLook.
constexpr ae::Duration kLook = 1ms;
constexpr ae::Duration kFirstLook = 10ms, kLastLook = 160ms;
// If input of the peer had to be discarded, the peer is assumed to send no more once nothing has
// arrived for this long.
constexpr ae::Duration kQuiet = 100ms;
// Maximum number of bytes discarded in one loop iteration, so that a peer that never stops sending
// does not block the loop.
constexpr std::size_t kDiscardBudget = std::size_t{4} << 20;

int unread_bytes(int fd) noexcept {
  int bytes = 0;
  return ioctl(fd, FIONREAD, &bytes) == 0 ? bytes : 0;
}

enum class Rest { kNone, kMore, kEnded, kBroken };

/// Reads and discards input, up to `most` bytes or slightly more, and adds their number to
/// `discarded`. Returns whether more input may be there, or why it ended.
Rest discard(int fd, std::size_t most, std::size_t& discarded) noexcept {
  while (discarded < most) {
    // Buffer for the discarded bytes. With MSG_TRUNC, TCP drops bytes without copying them, but a
    // socket with kernel TLS copies them all the same.
    char unread[16 * 1024];
    const ssize_t n = ::recv(fd, unread, sizeof unread, MSG_TRUNC | MSG_DONTWAIT);
    if (n > 0) {
      discarded += static_cast<std::size_t>(n);
    } else if (n == 0) {
      return Rest::kEnded;
    } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
      return Rest::kBroken;
    } else if (errno != EINTR) {
      return Rest::kNone;
    }
  }
  return Rest::kMore;
}

}  // namespace

bool closes_clean(int fd, bool peer_done) noexcept {
  return (peer_done || unsent_bytes(fd) == 0) && unread_bytes(fd) == 0;
}

bool deliver(int fd, ae::TimePoint until, ZeroCopyLedger* ledger) noexcept {
  for (;;) {
    // Empties the socket's error queue (zero-copy completions), which otherwise keeps the socket
    // readable.
    if (ledger != nullptr) (void)read_completions(fd, *ledger);
    std::size_t discarded = 0;
    const Rest rest = discard(fd, kDiscardBudget, discarded);
    if (rest == Rest::kBroken || (rest == Rest::kEnded && ledger == nullptr)) return true;
    if (rest != Rest::kMore && unsent_bytes(fd) == 0) return true;
    const ae::TimePoint now = std::chrono::steady_clock::now();
    if (now >= until) return false;
    // After the peer's end of stream `fd` is always readable: poll_until() gets -1 and only sleeps.
    const int poll_on = rest == Rest::kEnded ? -1 : fd;
    if (rest != Rest::kMore) poll_until(poll_on, POLLIN, std::min(until, now + kLook));
  }
}

Linger::Linger(ae::EventLoop& loop, int fd, ae::Duration limit, ZeroCopyLedger* ledger, Done done)
    : loop_(loop),
      fd_(fd),
      deadline_(std::chrono::steady_clock::now() + limit),
      ledger_(ledger),
      done_(std::move(done)),
      delay_(std::min(kFirstLook, limit)),
      peer_sends_(unread_bytes(fd_) > 0),
      last_arrival_(std::chrono::steady_clock::now()) {}

void Linger::start() {
  ::shutdown(fd_, SHUT_WR);
  loop_.add_file_event(fd_, ae::kReadable | ae::kTrusted, [this](int, ae::Mask) { readable(); });
  timer_ = loop_.add_time_event(delay_, [this] { return tick(); });
}

Linger::~Linger() { stop(); }

void Linger::stop() noexcept {
  if (std::exchange(over_, true)) return;
  loop_.remove_file_event(fd_, ae::kReadable | ae::kWritable);
  if (timer_ != 0) loop_.remove_time_event(timer_);
  timer_ = 0;
}

void Linger::finish() {
  stop();
  const Done done = std::move(done_);
  done();  // the handler may destroy this Linger
}

void Linger::readable() {
  if (ledger_ != nullptr) (void)read_completions(fd_, *ledger_);
  std::size_t discarded = 0;
  const Rest rest = discard(fd_, kDiscardBudget, discarded);
  if (discarded != 0) {
    peer_sends_ = true;
    last_arrival_ = std::chrono::steady_clock::now();
  }
  if (rest == Rest::kEnded && ledger_ != nullptr) {
    // If the socket were closed now, the kernel would finish delivery by itself, but would still
    // read lent memory (of zero-copy sends) meanwhile. So tick() waits until the peer has
    // acknowledged everything.
    peer_ended_ = true;
    loop_.remove_file_event(fd_, ae::kReadable);
    return;
  }
  // After end of stream no further input can provoke a reset, so the kernel finishes delivery by
  // itself when the socket is closed. After an error the peer is gone.
  if (rest == Rest::kEnded || rest == Rest::kBroken) finish();
}

ae::Duration Linger::tick() {
  const ae::TimePoint now = std::chrono::steady_clock::now();
  const bool delivered = unsent_bytes(fd_) == 0;
  const bool quiet = peer_ended_ || !peer_sends_ || now - last_arrival_ >= kQuiet;
  if ((delivered && quiet) || now >= deadline_) {
    timer_ = 0;
    finish();
    return ae::kNoMore;
  }
  delay_ = std::min({delay_ * 2, kLastLook, ae::Duration(deadline_ - now)});
  return delay_;
}

}}}  // namespace conn::tcp
