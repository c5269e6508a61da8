// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/zero_copy_ledger.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

namespace conn { inline namespace AECONN_ABI { namespace tcp {

void ZeroCopyLedger::begin() noexcept {
  assert(!open_ && newest_ - oldest_ < kMostReferences);
  ends_[newest_++ % kMostReferences] = next_;
  open_ = true;
}

void ZeroCopyLedger::finish() noexcept {
  if (!open_) return;
  ends_[(newest_ - 1) % kMostReferences] = next_;
  open_ = false;
}

void ZeroCopyLedger::completed(std::uint32_t from, std::uint32_t to) noexcept {
  // Compares distances from first_ instead of call numbers, which wrap around at 2^32.
  const std::uint32_t made = next_ - first_;
  const std::uint32_t end = to - first_ + 1;
  std::uint32_t at = from - first_;
  if (at >= made || end == 0 || end > made || at >= end) return;
  for (; at != end; ++at) over_.set((first_ + at) % kMostCalls);
  while (first_ != next_ && over_.test(first_ % kMostCalls)) over_.reset(first_++ % kMostCalls);
}

void ZeroCopyLedger::complete_all() noexcept {
  over_.reset();
  first_ = next_;
}

std::size_t ZeroCopyLedger::take_done() noexcept {
  std::size_t count = 0;
  for (; oldest_ != newest_; ++oldest_, ++count) {
    const bool being_sent = open_ && oldest_ + 1 == newest_;
    // The oldest reference is complete if its last call has a number before first_. Numbers wrap
    // around at 2^32, so the difference is tested, which is 1 to kMostCalls for an incomplete one.
    if (being_sent || ends_[oldest_ % kMostReferences] - first_ - 1 < kMostCalls) break;
  }
  return count;
}

ZeroCopyNews read_completions(int fd, ZeroCopyLedger& ledger) noexcept {
  ZeroCopyNews news;
  for (;;) {
    alignas(cmsghdr) std::array<char, 256> control;
    msghdr message{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (::recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
      if (errno == EINTR) continue;
      return news;
    }
    news.any = true;
    for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
         each = CMSG_NXTHDR(&message, each)) {
      const bool is_error = (each->cmsg_level == SOL_IP && each->cmsg_type == IP_RECVERR) ||
                            (each->cmsg_level == SOL_IPV6 && each->cmsg_type == IPV6_RECVERR);
      if (!is_error || each->cmsg_len < CMSG_LEN(sizeof(sock_extended_err))) continue;
      sock_extended_err what;
      std::memcpy(&what, CMSG_DATA(each), sizeof what);
      if (what.ee_errno != 0 || what.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      news.copied = news.copied || (what.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0;
      ledger.completed(what.ee_info, what.ee_data);
    }
  }
}

bool allow_zero_copy(int fd) noexcept {
  int on = 0;
  socklen_t size = sizeof on;
  if (getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, &size) != 0 || on != 0) return false;
  on = 1;
  return setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0;
}

}}}  // namespace conn::tcp
