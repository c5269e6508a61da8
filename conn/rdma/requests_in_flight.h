// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Records of the work requests on the send queue of one queue pair, until they complete. Requests
// have consecutive sequence numbers, which wrap around after 2^32.
//
// Invariant: the requests with numbers done() + 1 to posted() are on the send queue; they are at
// most as many as begin() allows. This does not hold after a request has failed: later requests are
// then not carried out.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class RequestsInFlight {
 public:
  /// Call when a new queue pair was created. `most`: largest number of requests on its send queue.
  /// Throws std::bad_alloc.
  void begin(std::uint32_t most) {
    ring_.assign(std::bit_ceil(most), Request{});
    mask_ = static_cast<std::uint32_t>(ring_.size() - 1);
    posted_ = done_ = last_signaled_ = last_data_ = 0;
    data_ = Data::kNone;
    failed_ = false;
  }
  /// posted() returns the sequence number of the last posted request; done() that of the last
  /// completed request; count() the number of requests that are posted and not completed.
  std::uint32_t posted() const noexcept { return posted_; }
  std::uint32_t done() const noexcept { return done_; }
  std::uint32_t count() const noexcept { return posted_ - done_; }
  /// The records are in a ring. places() returns its size, a power of two; place_of() the index of
  /// a request, which no other request in flight has.
  std::size_t places() const noexcept { return ring_.size(); }
  std::size_t place_of(std::uint32_t sequence) const noexcept { return sequence & mask_; }

  // --- recording posted requests -----------------------------------------------------------------
  /// Records that one more request was posted. `bytes`: number of bytes in the send buffer whose
  /// memory it uses until it completes. `message`: true if it consumes one of the peer's receives.
  void add(std::uint32_t bytes, bool message) noexcept {
    ++posted_;
    ring_[place_of(posted_)] = {bytes, message};
  }
  /// Does what add() does, for the last request of a batch of data, which is a message (a
  /// WRITE_WITH_IMM).
  void add_data(std::uint32_t bytes) noexcept {
    add(bytes, true);
    last_data_ = posted_;
    data_ = Data::kUnderWay;
  }
  /// Returns the sequence number of the last request that asks for a completion.
  std::uint32_t last_signaled() const noexcept { return last_signaled_; }
  void set_last_signaled(std::uint32_t sequence) noexcept { last_signaled_ = sequence; }
  /// Returns true if the last posted request asks for a completion, so that all requests will be
  /// reported as complete.
  bool last_is_signaled() const noexcept { return last_signaled_ == posted_; }

  // --- recording completions ---------------------------------------------------------------------
  /// Returns true if request number `sequence` is on the send queue.
  bool has(std::uint32_t sequence) const noexcept { return sequence - done_ - 1 < count(); }
  struct Retired {
    std::size_t bytes = 0;       ///< number of bytes in the send buffer that the requests used
    std::uint32_t messages = 0;  ///< number of requests that consumed a receive of the peer
  };
  /// Records that the requests up to number `sequence` are complete, and returns the totals of
  /// their records. Does nothing if this request is not on the send queue. After a request has
  /// failed, only updates done().
  Retired retire(std::uint32_t sequence) noexcept {
    Retired retired;
    if (!has(sequence)) return retired;
    while (!failed_ && done_ != sequence) {
      const Request request = ring_[place_of(++done_)];
      retired.bytes += request.bytes;
      retired.messages += request.message ? 1 : 0;
    }
    set_done(sequence);
    return retired;
  }
  /// Records that request number `sequence` has failed; it must be on the send queue. The records
  /// of this request and of later ones stay until begin().
  void fail(std::uint32_t sequence) noexcept {
    failed_ = true;
    set_done(sequence);
  }
  bool failed() const noexcept { return failed_; }
  /// Returns true if data of the user was posted and has not completed.
  bool data_under_way() const noexcept { return data_ == Data::kUnderWay; }
  /// Returns true if data of the user was ever posted on this queue pair.
  bool wrote() const noexcept { return data_ != Data::kNone; }

 private:
  struct Request {
    std::uint32_t bytes = 0;
    bool message = false;
  };
  enum class Data : std::uint8_t { kNone, kUnderWay, kConfirmed };
  // Records that the requests up to number `sequence` are over. The number last_data_ is compared
  // only while its request is in flight, because sequence numbers wrap around.
  void set_done(std::uint32_t sequence) noexcept {
    done_ = sequence;
    if (data_ == Data::kUnderWay && static_cast<std::int32_t>(last_data_ - done_) <= 0)
      data_ = Data::kConfirmed;
  }

  std::vector<Request> ring_;  // records of the requests; place_of() returns the index of one
  std::uint32_t mask_ = 0;     // ring_.size() - 1: the mask by which place_of() computes an index
  std::uint32_t posted_ = 0, done_ = 0, last_signaled_ = 0;
  std::uint32_t last_data_ = 0;  // sequence number of the last request with data of the user
  Data data_ = Data::kNone;      // state of the last request with data of the user
  // True after a request has failed; the device carries out no more requests then.
  bool failed_ = false;
};

}}}  // namespace conn::rdma
