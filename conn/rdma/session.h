// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a connection with the option resume stores independently of its network path, so that it can
// continue over another one: the number and the key of the session, which both ends share, and,
// while there is no path, the bytes that the peer may not have received. docs/resume.md describes
// the steps.
//
// Where the bytes are:
//
//     on a path        in the send buffer (Sender) and in the receive windows
//     without a path   our bytes are in unsent(), unread bytes of the peer in Reader
//     on a new path    the peer has stated how many bytes it has received: unsent() begins after
//                      these, and is sent before anything else

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/error.h"
#include "conn/rdma/pending_connection.h"
#include "conn/rdma/protocol/phase.h"
#include "conn/rdma/protocol/siphash.h"
#include "conn/rdma/protocol/wire.h"
#include "conn/rdma/session_table.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The end of our stream in ordinary (not registered) memory: the bytes from the first one that the
/// peer may not have received to the last one that the program wrote.
class Unsent {
 public:
  std::size_t size() const noexcept { return bytes_.size() - begin_; }
  bool empty() const noexcept { return size() == 0; }
  std::span<const std::byte> bytes() const noexcept { return std::span(bytes_).subspan(begin_); }
  /// Appends a copy of the bytes. Throws std::bad_alloc, and then changes no byte.
  void append(const std::byte* from, std::size_t size) {
    // Bytes that were dropped must not stay in memory as long as others follow them.
    if (begin_ > this->size()) {
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
      begin_ = 0;
    }
    bytes_.insert(bytes_.end(), from, from + size);
  }
  /// Inserts `bytes` before the other bytes. Throws std::bad_alloc, and then changes nothing.
  void prepend(std::vector<std::byte> bytes) {
    bytes.insert(bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), bytes_.end());
    bytes_ = std::move(bytes);
    begin_ = 0;
  }
  /// Removes the first `size` bytes; there must be that many.
  void drop(std::size_t size) noexcept {
    begin_ += size;
    if (begin_ != bytes_.size()) return;
    bytes_ = {};
    begin_ = 0;
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

class Session {
 public:
  /// kFirstPause, kLastPause: shortest and longest pause between two attempts to find a new network
  /// path. kAttempt: time that one attempt may take.
  static constexpr ae::Duration kFirstPause = std::chrono::milliseconds(25);
  static constexpr ae::Duration kLastPause = std::chrono::milliseconds(500);
  static constexpr ae::Duration kAttempt = std::chrono::seconds(1);
  /// Longest wait for the device's last completions of a stopped queue pair, which normally arrive
  /// within microseconds.
  static constexpr ae::Duration kQuietTime = std::chrono::milliseconds(50);
  /// Time for which attempts to find a new network path continue although nobody listens at the
  /// peer's address.
  static constexpr ae::Duration kNobody = std::chrono::seconds(2);

  Session(const Grant& grant, ae::Duration time) noexcept
      : id_(grant.session), key_(grant.key), time_(time) {}

  std::uint64_t id() const noexcept { return id_; }

  // --- keys, which authenticate resume requests and answers --------------------------------------
  /// Replaces the key by one that also depends on `secret`, which the protocol on top (TLS) has
  /// agreed on. Unless `peer_has_it`, the peer may not have the secret yet; so the old key is also
  /// valid, until more of the peer's bytes have arrived. `arrived`: number of bytes that have
  /// arrived so far.
  void take_secret(std::span<const std::byte> secret, bool peer_has_it,
                   std::uint64_t arrived) noexcept;
  /// Connecting side: returns the key for the next request for a network path, and its answer. If
  /// two keys are valid, attempts (see begin_attempt()) use them alternately, each for the requests
  /// to all addresses. `arrived`: number of bytes that have arrived so far.
  const SipKey& next_key(std::uint64_t arrived) noexcept;
  /// Connecting side: call when each address has refused an attempt to find a new network path with
  /// Refused::kUnknown. Returns true if an attempt with another key may succeed: two keys are
  /// valid, and the attempt may have used the one that the peer does not have yet or does not
  /// accept any more.
  bool may_know_other_key(std::uint64_t arrived) noexcept;
  /// Accepting side: finds the key with which the MAC of the request `sealed` was computed, and
  /// stores it as request_key(). `bound`: bound_address() of the requester. `arrived`: number of
  /// the peer's bytes that have arrived. Returns false if it is none of the valid keys.
  [[nodiscard]] bool find_key(std::span<const std::byte> sealed, std::span<const std::byte> bound,
                              std::uint64_t arrived) noexcept;
  /// Returns the key for the MACs of the present resume request and of its answer.
  const SipKey& request_key() const noexcept { return request_key_; }

  // --- generations: requests for a path are numbered in increasing order -------------------------
  std::uint32_t generation() const noexcept { return generation_; }
  std::uint32_t next_generation() noexcept { return ++generation_; }
  /// Connecting side: records that the network path leads to the address with index `address` among
  /// those of the URL.
  void on_address(std::uint32_t address) noexcept { address_ = address; }
  /// Connecting side: call when an attempt to find a new network path begins. Returns the index of
  /// the address to try first, modulo the number of addresses: for the first attempt the one after
  /// that of the lost path, and one further for each further attempt.
  std::uint32_t begin_attempt() noexcept {
    use_before_ = !use_before_;
    return address_ + attempts_++;
  }
  /// Connecting side: call if the network path was left on purpose. The next attempt to find a path
  /// then begins with the peer's address of the path that was left.
  void prefer_same_address() noexcept { attempts_ = 0; }
  /// Accepting side: records the generation (increasing number) of a request. Returns false if a
  /// request of this or a later generation was handled already.
  bool take_generation(std::uint32_t generation) noexcept {
    if (generation <= generation_) return false;
    generation_ = generation;
    return true;
  }

  // --- the loss of the network path --------------------------------------------------------------
  /// Records that the network path was lost in `phase`, for the reason `why`. `more`: time that
  /// this end waits for a new path in addition to the agreed time.
  void lose(Phase phase, Failure why, ae::TimePoint now, ae::Duration more);
  bool lost() const noexcept { return lost_; }
  /// Returns the phase to which the connection returns on its new network path.
  Phase resumes_as() const noexcept { return resumes_as_; }
  void resume_as(Phase phase) noexcept { resumes_as_ = phase; }
  const Failure& why() const noexcept { return why_; }
  ae::TimePoint lost_at() const noexcept { return lost_at_; }
  /// Returns the time at which the connection fails if it has no new network path.
  ae::TimePoint until() const noexcept { return until_; }
  /// Returns the time at which the objects of the lost network path are destroyed even if the
  /// device has not reported all completions.
  ae::TimePoint left_by() const noexcept { return left_by_; }
  /// Records that a queue pair was stopped at the time `now`; left_by() is kQuietTime later.
  void on_stopped(ae::TimePoint now) noexcept { left_by_ = now + kQuietTime; }
  /// Ends the session: drops all stored bytes. Later requests of the peer for a new network path
  /// are refused.
  void end() noexcept;
  void give_up_at(ae::TimePoint at) noexcept { until_ = std::min(until_, at); }

  // --- bytes that the peer may not have received -------------------------------------------------
  /// Call when the objects of the lost network path are destroyed. `confirmed`: number of our bytes
  /// that the peer has certainly received. `posted`: number of our bytes that were posted to the
  /// device. `bytes`: our bytes after the first `confirmed` ones.
  void keep(std::uint64_t confirmed, std::uint64_t posted, std::vector<std::byte> bytes);
  Unsent& unsent() noexcept { return unsent_; }
  const Unsent& unsent() const noexcept { return unsent_; }
  std::uint64_t confirmed() const noexcept { return confirmed_; }
  /// Records how many of our bytes the peer has received, by its own count; the others must be
  /// sent. If the number is impossible (less than was confirmed, or more than was posted), returns
  /// false and only sets peer_misses_bytes().
  [[nodiscard]] bool take_count(std::uint64_t counted) noexcept;
  /// Returns true if take_count() has returned false: bytes are lost, and cannot be sent again.
  bool peer_misses_bytes() const noexcept { return peer_misses_bytes_; }
  /// Returns the total number of bytes that the program has written. Valid only after keep() was
  /// called for the lost network path.
  std::uint64_t total() const noexcept { return confirmed_ + unsent_.size(); }
  /// Returns how many of our bytes the peer has not received. `counted`: the low 32 bits of the
  /// number that it has received, by its own count; an impossible value counts as the number of
  /// confirmed bytes.
  std::uint64_t missed_by(std::uint32_t counted) const noexcept;

  // --- attempts to find a new path ---------------------------------------------------------------
  /// Returns the time of the next step towards a new network path: an attempt, or the end of the
  /// wait.
  ae::TimePoint next_at() const noexcept { return next_at_; }
  void set_next(ae::TimePoint at) noexcept { next_at_ = std::min(at, until_); }
  /// Plans the next attempt to find a network path after a failed one. `nobody`: nobody listens at
  /// the peer's address. Returns false if no further attempt may be made, because the time for them
  /// is over.
  [[nodiscard]] bool plan_next(ae::TimePoint now, bool nobody) noexcept;
  /// Records that the connection has a network path again.
  void on_path() noexcept;

  // --- number of resumes, and state that class PathRecovery keeps here ---------------------------
  std::uint32_t resumes() const noexcept { return resumes_; }

  /// Connecting side: MAC (authentication code) of the present request, to which the answer must
  /// fit.
  std::array<std::byte, 16> request_mac{};
  /// Connecting side: true if the present request asks the peer to end the session instead of
  /// asking for a new network path.
  bool asked_to_forget = false;
  /// Accepting side: the peer's latest request for a new network path, stored until the old path
  /// was left.
  std::unique_ptr<RdmaPending> request;
  /// An earlier copy of unread bytes of which the program still has a view.
  std::unique_ptr<std::byte[]> viewed;
  /// Accepting side: the session's entry in SessionTable, the table of this process.
  SessionTable::Entry entry;

 private:
  bool two_keys(std::uint64_t arrived) const noexcept { return unsure_ && arrived == arrived_; }

  const std::uint64_t id_;
  SipKey key_, key_before_{}, request_key_{};
  // True: key_before_, the earlier session key, is valid too, until more than arrived_ bytes come.
  bool unsure_ = false;
  bool use_before_ = true;  // true if the present attempt must use key_before_
  // True if the peer has refused the earlier key since the loss of the network path.
  bool before_refused_ = false;
  std::uint64_t arrived_ = 0;
  const ae::Duration time_;
  std::uint32_t generation_ = 0;
  std::uint32_t address_ = 0;  // index of the address in use among those of the URL
  // Number that begin_attempt() adds to address_: 1 after the loss of the network path, 0 after the
  // path was left on purpose; 1 more after each attempt.
  std::uint32_t attempts_ = 1;
  bool lost_ = false, peer_misses_bytes_ = false;
  Phase resumes_as_ = Phase::kOpen;
  Failure why_;
  ae::TimePoint lost_at_{}, left_by_{}, until_{}, next_at_{};
  // Time since when nobody listens at the peer's address; zero: the last attempt failed for another
  // reason.
  ae::TimePoint nobody_since_{};
  ae::Duration pause_{};
  std::uint64_t confirmed_ = 0, posted_ = 0;
  Unsent unsent_;
  std::uint32_t resumes_ = 0;
};

}}}  // namespace conn::rdma
