// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a connection with option resume keeps beside its path, so that it can go on over another one
// when its path is lost: the identity that both ends share, and, while there is no path, the bytes
// that the peer may not have. docs/resume.md describes the steps.
//
//     on a path    the bytes are in the send buffer (Sender) and in the receive windows
//     lost         the path is left: unsent() has our bytes, Reader has the unread ones
//     on a path    the peer has said how many bytes it counted: unsent() begins there, and is sent
//                  before anything else

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

/// Bytes of our stream, in order, in ordinary memory: from the first that the peer may not have to
/// the last that the program wrote.
class Unsent {
 public:
  std::size_t size() const noexcept { return bytes_.size() - begin_; }
  bool empty() const noexcept { return size() == 0; }
  std::span<const std::byte> bytes() const noexcept { return std::span(bytes_).subspan(begin_); }
  /// Throws std::bad_alloc, and then changes nothing.
  void append(const std::byte* from, std::size_t size) {
    bytes_.insert(bytes_.end(), from, from + size);
  }
  /// Puts these bytes before the others.
  void prepend(std::vector<std::byte> bytes) {
    bytes.insert(bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), bytes_.end());
    bytes_ = std::move(bytes);
    begin_ = 0;
  }
  /// Removes the first `size` bytes, of which there must be as many.
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
  /// The shortest and the longest pause between two attempts to find a new path, and the time that
  /// one attempt may take.
  static constexpr ae::Duration kFirstPause = std::chrono::milliseconds(25);
  static constexpr ae::Duration kLastPause = std::chrono::milliseconds(500);
  static constexpr ae::Duration kAttempt = std::chrono::seconds(1);
  /// How long the device may take to report the last completions of a stopped queue pair, which
  /// takes microseconds.
  static constexpr ae::Duration kQuietTime = std::chrono::milliseconds(50);
  /// How long attempts go on although nobody listens at the peer's address.
  static constexpr ae::Duration kNobody = std::chrono::seconds(2);

  Session(const Grant& grant, ae::Duration time) noexcept
      : id_(grant.session), key_(grant.key), time_(time) {}

  std::uint64_t id() const noexcept { return id_; }

  // --- keys: requests and answers are sealed with the session's key ------------------------------
  /// Makes the key depend on a secret of the protocol above. `arrived`: number of the peer's bytes
  /// so far. If the path is lost now, the peer may not have the secret yet, unless `peer_has_it`.
  /// So the key before counts as well, until more of the peer's bytes have arrived.
  void take_secret(std::span<const std::byte> secret, bool peer_has_it,
                   std::uint64_t arrived) noexcept;
  /// Connecting side: returns the key for the next request, and for its answer. If two keys count,
  /// each request has the other one than the request before.
  const SipKey& next_key(std::uint64_t arrived) noexcept;
  /// Connecting side: returns whether another request is worth a try although the peer has refused
  /// one as not its session's. If two keys count, the request may have had the one that the peer
  /// does not have yet, or the one that it no longer accepts.
  bool may_know_other_key(std::uint64_t arrived) noexcept;
  /// Accepting side: finds the key with which a request is sealed. Returns false if that is none
  /// that counts now.
  [[nodiscard]] bool find_key(std::span<const std::byte> sealed, std::span<const std::byte> bound,
                              std::uint64_t arrived) noexcept;
  /// The key of the request under way, which its answer must have.
  const SipKey& request_key() const noexcept { return request_key_; }

  // --- generations: each request for a path has a number of its own, greater than the last -------
  std::uint32_t generation() const noexcept { return generation_; }
  std::uint32_t next_generation() noexcept { return ++generation_; }
  /// Connecting side: records that the path goes to address number `address` of the URL.
  void on_address(std::uint32_t address) noexcept { address_ = address; }
  /// Connecting side: call when an attempt to find a path begins. Returns the number of the address
  /// to begin with, to be taken modulo their number: after a loss first the one after the address
  /// whose path was lost, with each further attempt the next one.
  std::uint32_t begin_attempt() noexcept { return address_ + attempts_++; }
  /// Connecting side: the path was not lost but left on purpose, so its address is tried first.
  void prefer_same_address() noexcept { attempts_ = 0; }
  /// Accepting side: returns false if a request of this or a later attempt has been handled.
  bool take_generation(std::uint32_t generation) noexcept {
    if (generation <= generation_) return false;
    generation_ = generation;
    return true;
  }

  // --- the loss of the path ----------------------------------------------------------------------
  /// Records that the path was lost in `phase`, for the reason `why`. `more`: how much longer than
  /// the agreed time this end waits.
  void lose(Phase phase, Failure why, ae::TimePoint now, ae::Duration more);
  bool lost() const noexcept { return lost_; }
  /// Phase that the connection returns to on its new path.
  Phase resumes_as() const noexcept { return resumes_as_; }
  void resume_as(Phase phase) noexcept { resumes_as_ = phase; }
  const Failure& why() const noexcept { return why_; }
  ae::TimePoint lost_at() const noexcept { return lost_at_; }
  /// Time at which the connection fails if it has no path.
  ae::TimePoint until() const noexcept { return until_; }
  /// Time at which the path is left even if the device has not reported all of its completions.
  ae::TimePoint left_by() const noexcept { return left_by_; }
  /// Records that a queue pair was stopped: sets left_by().
  void on_stopped(ae::TimePoint now) noexcept { left_by_ = now + kQuietTime; }
  /// Ends the session: nothing more is kept, and the peer's requests are refused.
  void end() noexcept;
  void give_up_at(ae::TimePoint at) noexcept { until_ = std::min(until_, at); }

  // --- bytes that the peer may not have ----------------------------------------------------------
  /// Records, when the path is left, that the peer has the first `confirmed` of our bytes, that
  /// `posted` were given to the device, and that `bytes` follow the confirmed ones.
  void keep(std::uint64_t confirmed, std::uint64_t posted, std::vector<std::byte> bytes);
  Unsent& unsent() noexcept { return unsent_; }
  const Unsent& unsent() const noexcept { return unsent_; }
  std::uint64_t confirmed() const noexcept { return confirmed_; }
  /// Takes the number of our bytes that the peer has counted; the rest is to be sent. Returns
  /// false, and keeps the counts, if that is less than what was confirmed or more than what was
  /// posted.
  [[nodiscard]] bool take_count(std::uint64_t counted) noexcept;
  /// Whether take_count() has returned false: bytes are gone, and no path can bring them.
  bool peer_misses_bytes() const noexcept { return peer_misses_bytes_; }
  /// Number of bytes that the program wrote in all. Valid once the path is left.
  std::uint64_t total() const noexcept { return confirmed_ + unsent_.size(); }
  /// Returns how many of our bytes the peer lacks if the number of bytes that it counted has these
  /// low 32 bits. A number that cannot be right is replaced by that of the confirmed bytes.
  std::uint64_t missed_by(std::uint32_t counted) const noexcept;

  // --- attempts to find a new path ---------------------------------------------------------------
  /// When the next step is due: an attempt, or the end of the wait.
  ae::TimePoint next_at() const noexcept { return next_at_; }
  void set_next(ae::TimePoint at) noexcept { next_at_ = std::min(at, until_); }
  /// Plans the next attempt, after a failed one. `nobody`: nobody listens at the peer's address.
  /// Returns false if there is to be none.
  [[nodiscard]] bool plan_next(ae::TimePoint now, bool nobody) noexcept;
  /// Records that the connection has a path again.
  void on_path() noexcept;

  // --- facts -------------------------------------------------------------------------------------
  std::uint32_t resumes() const noexcept { return resumes_; }

  /// Connecting side: MAC of the request under way.
  std::array<std::byte, 16> request_mac{};
  /// Connecting side: whether that request is one to forget the session.
  bool asked_to_forget = false;
  /// Accepting side: the peer's latest request for a new path, while the old one is being left.
  std::unique_ptr<RdmaPending> request;
  /// An earlier copy of unread bytes, which the program may still view in place.
  std::unique_ptr<std::byte[]> viewed;
  /// Accepting side: the session's entry in the table of the process.
  SessionTable::Entry entry;

 private:
  bool two_keys(std::uint64_t arrived) const noexcept { return unsure_ && arrived == arrived_; }

  const std::uint64_t id_;
  SipKey key_, key_before_{}, request_key_{};
  bool unsure_ = false;      // whether key_before_ counts until more than arrived_ bytes are there
  bool use_before_ = false;  // whether the next request has key_before_
  bool before_refused_ = false;  // whether the peer has refused key_before_ since the loss
  std::uint64_t arrived_ = 0;
  const ae::Duration time_;
  std::uint32_t generation_ = 0;
  std::uint32_t address_ = 0;   // number of the path's address in the URL
  std::uint32_t attempts_ = 1;  // number of attempts since the loss, plus one if it was a loss
  bool lost_ = false, peer_misses_bytes_ = false;
  Phase resumes_as_ = Phase::kOpen;
  Failure why_;
  ae::TimePoint lost_at_{}, left_by_{}, until_{}, next_at_{};
  // Time since which nobody listens at the peer's address; zero: the last attempt failed for
  // another reason.
  ae::TimePoint nobody_since_{};
  ae::Duration pause_{};
  std::uint64_t confirmed_ = 0, posted_ = 0;
  Unsent unsent_;
  std::uint32_t resumes_ = 0;
};

}}}  // namespace conn::rdma
