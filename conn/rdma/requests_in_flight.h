// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What is recorded of the work requests on the send queue of one queue pair, until they complete. A
// request has a sequence number, one more than that of the request before it; the numbers wrap
// around after 2^32.
//
// Invariants: the requests after number done() up to number posted() are on the send queue, at most
// as many as begin() was told. This ends when a request fails: those after it are not carried out.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class RequestsInFlight {
 public:
  /// Call when a new queue pair was created: at most `most` requests are on its send queue. Throws
  /// std::bad_alloc.
  void begin(std::uint32_t most) {
    ring_.assign(std::bit_ceil(most), Request{});
    posted_ = done_ = last_signaled_ = last_data_ = 0;
    data_ = Data::kNone;
    failed_ = false;
  }
  /// Sequence numbers of the last request that was posted, and of the last that is complete.
  std::uint32_t posted() const noexcept { return posted_; }
  std::uint32_t done() const noexcept { return done_; }
  std::uint32_t count() const noexcept { return posted_ - done_; }
  /// Number of requests that there is a place for, a power of two; and the place of a request,
  /// which no other request has while this one is on the send queue.
  std::size_t places() const noexcept { return ring_.size(); }
  std::size_t place_of(std::uint32_t sequence) const noexcept {
    return sequence & (ring_.size() - 1);
  }

  // --- posting -----------------------------------------------------------------------------------
  /// Records that one more request is posted. `bytes`: the staged bytes that it holds until it
  /// completes. `message`: whether it consumes one of the peer's receives.
  void add(std::uint32_t bytes, bool message) noexcept {
    ++posted_;
    ring_[place_of(posted_)] = {bytes, message};
  }
  /// Does what add() does for the last request of some bytes of the user, which is a message.
  void add_data(std::uint32_t bytes) noexcept {
    add(bytes, true);
    last_data_ = posted_;
    data_ = Data::kUnderWay;
  }
  /// Number of the last request that asks for a completion.
  std::uint32_t last_signaled() const noexcept { return last_signaled_; }
  void set_last_signaled(std::uint32_t sequence) noexcept { last_signaled_ = sequence; }
  /// Whether the last request asks for a completion, so that nothing is complete unreported.
  bool last_is_signaled() const noexcept { return last_signaled_ == posted_; }

  // --- completions -------------------------------------------------------------------------------
  /// Whether request number `sequence` is on the send queue.
  bool has(std::uint32_t sequence) const noexcept { return sequence - done_ - 1 < count(); }
  struct Retired {
    std::size_t bytes = 0;       ///< staged bytes that the requests held
    std::uint32_t messages = 0;  ///< how many of them consumed a receive of the peer
  };
  /// Records that the requests up to number `sequence` are complete, and returns what they held.
  /// Ignores the number of a request that is not on the send queue. Once a request has failed, only
  /// counts.
  Retired retire(std::uint32_t sequence) noexcept {
    Retired retired;
    if (!has(sequence)) return retired;
    while (!failed_ && done_ != sequence) {
      const Request request = std::exchange(ring_[place_of(++done_)], Request{});
      retired.bytes += request.bytes;
      retired.messages += request.message ? 1 : 0;
    }
    set_done(sequence);
    return retired;
  }
  /// Records that request number `sequence`, which must be on the send queue, failed. What it and
  /// the later requests hold stays recorded until begin().
  void fail(std::uint32_t sequence) noexcept {
    failed_ = true;
    set_done(sequence);
  }
  bool failed() const noexcept { return failed_; }
  /// Returns true if requests with bytes of the user are on the send queue and not yet complete.
  bool data_under_way() const noexcept { return data_ == Data::kUnderWay; }
  /// Returns true if bytes of the user were ever posted on this queue pair.
  bool wrote() const noexcept { return data_ != Data::kNone; }

 private:
  struct Request {
    std::uint32_t bytes = 0;
    bool message = false;
  };
  enum class Data : std::uint8_t { kNone, kUnderWay, kConfirmed };
  // Sequence numbers wrap around, so last_data_ is compared only while its request is in flight.
  void set_done(std::uint32_t sequence) noexcept {
    done_ = sequence;
    if (data_ == Data::kUnderWay && static_cast<std::int32_t>(last_data_ - done_) <= 0)
      data_ = Data::kConfirmed;
  }

  std::vector<Request> ring_;  // by place_of()
  std::uint32_t posted_ = 0, done_ = 0, last_signaled_ = 0;
  std::uint32_t last_data_ = 0;  // number of the last request with bytes of the user
  Data data_ = Data::kNone;      // progress of that request: confirmed once it is complete
  // True once a request failed, after which the device carries out no more requests.
  bool failed_ = false;
};

}}}  // namespace conn::rdma
