// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Limits the handshake messages that a peer may send after the handshake. RFC 8446 lets a peer send
// KeyUpdate and tickets at any time. A peer that sends more than kMessages of them per kPer bytes
// of data (both directions counted) only wastes time.

#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class MessageLimit {
 public:
  static constexpr std::uint64_t kMessages = 64, kPer = 1 << 20;

  /// Adds to the number of plaintext bytes that were read or written.
  void count_data(std::uint64_t bytes) noexcept { data_ += bytes; }
  /// Counts a handshake message of the peer. Returns whether it exceeds the limit.
  bool count_message() noexcept {
    if (data_ - counted_from_ >= kPer) {
      messages_ = 0;
      counted_from_ = data_;
    }
    return ++messages_ > kMessages;
  }

 private:
  std::uint64_t data_ = 0;
  std::uint64_t messages_ = 0;      // number of messages since data_ had the value counted_from_
  std::uint64_t counted_from_ = 0;  // value of data_ when messages_ was last reset to 0
};

}}}  // namespace conn::tls
