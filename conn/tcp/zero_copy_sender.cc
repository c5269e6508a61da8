// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/zero_copy_sender.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

bool is_cut(int fd) noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return info.tcpi_state == TCP_CLOSE && unsent_bytes(fd) != 0;
}

bool ZeroCopySender::begin(int fd) {
  if (active()) return true;
  if (given_up_ || !allow_zero_copy(fd)) {
    given_up_ = true;
    return false;
  }
  ledger_ = std::make_unique<ZeroCopyLedger>();
  owner_ = getpid();
  return true;
}

ssize_t ZeroCopySender::send(int fd, std::span<const std::byte> bytes, bool& all_done) noexcept {
  const bool went_on = goes_on();
  ssize_t n;
  bool lent;
  do {
    lent = !given_up_ && ledger_->has_room();
    const int flags = MSG_NOSIGNAL | (lent ? MSG_ZEROCOPY : 0);
    n = ::send(fd, bytes.data(), bytes.size(), flags);
    // send(2) fails with ENOBUFS when the limit net.core.optmem_max or RLIMIT_MEMLOCK is reached.
    if (n < 0 && lent && errno == ENOBUFS) {
      given_up_ = true;
      errno = EINTR;
    }
  } while (n < 0 && errno == EINTR);
  if (n < 0) return n;
  if (!went_on) ledger_->begin();
  if (lent) ledger_->sent();
  if (static_cast<std::size_t>(n) == bytes.size()) {
    ledger_->finish();
    all_done = !ledger_->under_way();
  }
  return n;
}

bool ZeroCopySender::take_completions(int fd) noexcept {
  if (!is_lent() || !is_ours()) return false;
  const ZeroCopyNews news = read_completions(fd, *ledger_);
  if (news.copied) given_up_ = true;
  if (news.any) had_completions_ = true;
  return news.any;
}

bool ZeroCopySender::end_if_idle() noexcept {
  if (!active() || !given_up_ || ledger_->waits()) return false;
  ledger_.reset();
  return true;
}

void ZeroCopySender::acknowledged() noexcept {
  if (active() && is_ours()) ledger_->complete_all();
}

}}}  // namespace conn::tcp
