// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Passes ciphertext from OpenSSL to the wire (connection below TLS). The wire is offered bytes by a
// call of its transmit(), which may take only some of them. Bytes that the wire does not take are
// kept, in order, so that OpenSSL never retries a half-written record. The last flight of a
// handshake can be held back, to be sent together with the first data. Records of one large write
// can be gathered, to be offered to the wire together.
//
//   from          to            when
//   kThrough      kUnsent       the wire did not take all
//   kThrough      kCollecting   collect()
//   kCollecting   kThrough      the handshake wrote nothing
//   kCollecting   kHeld         the handshake is over, and what it wrote is its last flight
//   kCollecting   kUnsent       the handshake goes on or has failed: flush() is due
//   kHeld         kUnsent       the next write, or flush(), offers the flight to the wire
//   kThrough      kGathering    gather()
//   kGathering    kThrough      the wire took all that was gathered, or has failed
//   kGathering    kUnsent       the wire did not take all
//   kUnsent       kThrough      the wire took all, or has failed
//
//   in state      bytes are kept   the wire was offered them   further bytes
//   kThrough      no                                           are offered to the wire
//   kCollecting   maybe            no                          are kept
//   kHeld         yes              no                          are sent together with the flight
//   kGathering    in the room      no                          are put into the room; if it is full
//                                                              all of it is offered to the wire
//   kUnsent       yes              yes                         are kept, unless a record has a type

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Output {
 public:
  enum class State : std::uint8_t { kThrough, kCollecting, kHeld, kGathering, kUnsent };
  enum class Flushed { kAll, kPartly, kFailed };

  static constexpr bool allowed(State from, State to) {
    using enum State;
    switch (from) {  // there is no default, so that the compiler warns about a missing state
      case kThrough:
        return to == kCollecting || to == kGathering || to == kUnsent;
      case kCollecting:
        return to == kThrough || to == kHeld || to == kUnsent;
      case kHeld:
        return to == kUnsent;
      case kGathering:
        return to == kThrough || to == kUnsent;
      case kUnsent:
        return to == kThrough;
    }
    return false;
  }

  explicit Output(CheckedWire& wire) noexcept : wire_(wire) {}

  /// Makes put() collect the bytes that follow instead of sending them, unless it keeps unsent
  /// bytes already.
  void collect() noexcept {
    if (state_ == State::kThrough) move_to(State::kCollecting);
  }
  /// Ends what collect() began. With `complete` (the handshake is over) the collected bytes are
  /// held back; otherwise the caller must call flush() if there are any. Returns whether there are
  /// any.
  bool end_collecting(bool complete) noexcept {
    if (state_ != State::kCollecting) return false;
    move_to(bytes_.empty() ? State::kThrough : complete ? State::kHeld : State::kUnsent);
    return state_ != State::kThrough;
  }
  /// Whether the last messages of the handshake are held back.
  bool holds() const noexcept { return state_ == State::kHeld; }

  /// The largest record, its header included (RFC 5246, section 6.2.3).
  static constexpr std::size_t kLargestRecord = 5 + 16384 + 2048;
  /// The largest number of bytes that are gathered. 64 KiB of data with a short header of the
  /// program fit in: four full records, as OpenSSL writes them, and one more of any size.
  static constexpr std::size_t kMostGathered = 4 * (16384 + 64) + kLargestRecord;
  /// Makes put() gather up to kMostGathered bytes in `room` (a buffer), which must remain until
  /// send_gathered(). No effect if bytes of an earlier put() wait to be sent, or if the room is too
  /// small for one TLS record.
  void gather(std::span<char> room) noexcept {
    if (state_ != State::kThrough || next_type_ != 0 || room.size() < kLargestRecord) return;
    room_ = room.first(std::min(room.size(), kMostGathered));
    gathered_ = 0;
    move_to(State::kGathering);
  }
  /// Whether put() gathers: gather() was called, and send_gathered() was not.
  bool gathers() const noexcept { return state_ == State::kGathering; }
  /// Ends what gather() began: offers the bytes to the wire (connection below TLS), and keeps those
  /// that it does not take. Returns false if the wire has failed.
  bool send_gathered();

  /// Declares what the bytes of the next put() are: a record of type `type`, which the kernel
  /// encrypts, or, if `type` is 0, ciphertext.
  void set_type(std::uint8_t type) noexcept { next_type_ = type; }
  /// Takes all bytes and returns `size`, or takes none and returns 0: the wire (connection below
  /// TLS) has failed, or the bytes are a record for the kernel, which must wait for the bytes
  /// before it.
  std::size_t put(const char* bytes, std::size_t size);
  /// Offers the kept bytes to the wire (connection below TLS). Drops them if the wire fails.
  Flushed flush();
  /// Returns the number of bytes that the wire (connection below TLS) was offered and did not take;
  /// bytes that are collected or held back are not included.
  std::size_t unsent() const noexcept {
    return state_ == State::kUnsent ? bytes_.size() - sent_ : 0;
  }
  State state() const noexcept { return state_; }
  /// Frees the buffer if it is empty.
  void release_memory() noexcept {
    if (state_ == State::kThrough) std::vector<char>().swap(bytes_);
  }

 private:
  void move_to(State next) noexcept {
    assert(allowed(state_, next));
    state_ = next;
  }
  bool keep(const char* bytes, std::size_t size);
  void forget() noexcept;

  CheckedWire& wire_;
  std::vector<char> bytes_;
  std::size_t sent_ = 0;      // how many bytes of bytes_ have been sent
  std::span<char> room_;      // buffer that gather() was given
  std::size_t gathered_ = 0;  // number of bytes that room_ holds
  State state_ = State::kThrough;
  std::uint8_t next_type_ = 0;
  // type of the record in bytes_, which the kernel encrypts; 0: bytes_ holds ciphertext
  std::uint8_t type_ = 0;
};

}}}  // namespace conn::tls
