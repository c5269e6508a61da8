// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A table of the sessions of this process whose peers may ask for a new network path: the accepting
// ends of connections with the option resume. A request may arrive at a listener on a loop other
// than the connection's, so all threads share the table. It is locked only when a session begins,
// moves or ends, and when a request for a session arrives.

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"
#include "conn/rdma/pending_connection.h"
#include "conn/rdma/protocol/resume_message.h"
#include "conn/rdma/protocol/siphash.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class SessionTable {
 public:
  /// Interface through which the table calls a connection whose session (what can continue over
  /// another network path) it holds, on the thread of the connection's loop.
  class User {
   public:
    /// Called when the peer asks for a new network path for the session, by a request with a valid
    /// MAC. The rdma_cm id of the request belongs to the channel of the connection's loop. The
    /// function must check that the request does not repeat an earlier one
    /// (ResumeMessage::generation).
    virtual void on_resume_request(std::unique_ptr<RdmaPending> request,
                                   const ResumeMessage& message) = 0;

   protected:
    ~User() = default;
  };
  /// The connection that a session belongs to, and its event loop, which must exist as long as the
  /// entry. `loop` is null while the connection moves to another loop.
  struct Home {
    ae::EventLoop* loop = nullptr;
    std::shared_ptr<CmChannel> channel;
    User* user = nullptr;
  };
  /// Ownership of the entry of one session (one resumable connection) in the table. The destructor
  /// removes the entry.
  class Entry {
   public:
    Entry() = default;
    explicit Entry(std::uint64_t id) noexcept : id_(id) {}
    Entry(Entry&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
    Entry& operator=(Entry&& other) noexcept {
      std::swap(id_, other.id_);
      return *this;
    }
    ~Entry();
    /// Records that the connection is now on the loop `home.loop`. If that is null, peers are asked
    /// to send their requests again later. Does nothing if this object owns no entry.
    void move_to(const Home& home) noexcept;
    /// Sets the keys with one of which the MAC of a request must be computed; both may be equal.
    /// Does nothing if this object owns no entry.
    void set_keys(const SipKey& key, const SipKey& other) noexcept;

   private:
    std::uint64_t id_ = 0;  // number of the session; 0: this object owns no entry
  };

  enum class Passed : std::uint8_t {
    kYes,
    kUnknown,  ///< there is no such session, the MAC is wrong, or the request is a repetition
    /// The connection is moving between two loops, or the request could not be moved to its loop.
    kLater,
  };
  /// Returns the table of this process, which is never destroyed. A child of fork() gets a new,
  /// empty one.
  static SessionTable& of_process();
  /// `parents`: in a child of fork(), the inherited table, which must not be used; otherwise null.
  explicit SessionTable(const SessionTable* parents) noexcept : parents_(parents) {}
  /// Adds a session (for one resumable connection) with a random id, which no other session has,
  /// and a random key. Throws std::bad_alloc, or Error if the kernel provides no random bytes.
  std::pair<Grant, Entry> add(const Home& home);
  /// Passes a request to resume a session to the connection of the session: at once if the
  /// connection is on the loop `here`, otherwise by a function posted to its loop. `bound`:
  /// bound_address() of the requester. If the result is not kYes, the caller still has the request.
  [[nodiscard]] Passed pass(std::unique_ptr<RdmaPending>& request, const ResumeMessage& message,
                            std::span<const std::byte> bound, ae::EventLoop& here);

 private:
  struct Place {
    Home home;
    SipKey key{}, other_key{};
    // Generation (increasing number) of the last request with `key` that was passed on.
    std::uint32_t generation = 0;
  };
  User* find(std::uint64_t id, const ae::EventLoop& here);
  void remove(std::uint64_t id) noexcept;
  void move(std::uint64_t id, const Home& home) noexcept;
  void set_keys(std::uint64_t id, const SipKey& key, const SipKey& other) noexcept;

  const ae::MadeHere made_here_;
  // In a child of fork(): keeps the parent's table reachable, so that it does not count as leaked.
  [[maybe_unused]] const SessionTable* const parents_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Place> places_;
};

}}}  // namespace conn::rdma
