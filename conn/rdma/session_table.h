// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sessions of this process whose peers may ask for a new path: the accepting ends of
// connections with option resume. A request may arrive at a listener of another loop than the
// connection's, so the table is shared by all threads; it is asked when a session begins, moves,
// ends, and when a request for it arrives.

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
  /// The connection of a session. It is called on the thread of its loop.
  class User {
   public:
    /// A request with a valid MAC, and with a generation that none before it had, has arrived for
    /// the session. Its rdma_cm id belongs to the loop's channel.
    virtual void on_resume_request(std::unique_ptr<RdmaPending> request,
                                   const ResumeMessage& message) = 0;

   protected:
    ~User() = default;
  };
  /// Where the connection of a session is; its loop is alive while the entry exists.
  struct Home {
    ae::EventLoop* loop = nullptr;
    std::shared_ptr<CmChannel> channel;
    User* user = nullptr;
  };
  /// A session's place in the table; destroying it removes the session.
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
    /// Records that the connection is now at `home`. If `home` has no loop, peers are told to send
    /// their requests again later. Does nothing without an entry.
    void move_to(const Home& home) noexcept;
    /// From now on requests must be sealed with one of these keys, which may be equal. Does nothing
    /// without an entry.
    void set_keys(const SipKey& key, const SipKey& other) noexcept;

   private:
    std::uint64_t id_ = 0;  // 0: no entry
  };

  enum class Passed : std::uint8_t {
    kYes,
    kUnknown,  ///< there is no such session, or the request is not its peer's
    kLater,    ///< the connection is between two loops, or its loop cannot be reached now
  };
  /// The table of this process; a child of fork() begins with an empty one. It is never destroyed.
  static SessionTable& of_process();
  /// `parents`: the table that a child of fork() has inherited, which it must not touch; or null.
  explicit SessionTable(const SessionTable* parents) noexcept : parents_(parents) {}
  /// Adds a session under an id that no other has; the id and the key of the grant are random.
  /// Throws std::bad_alloc, or Error if the kernel gives no random bytes.
  std::pair<Grant, Entry> add(const Home& home);
  /// Takes a request: passes it to the session's connection, now if that is on the loop `here`,
  /// otherwise through its loop. `bound`: see verify_request(). If the result is not kYes, the
  /// request is unchanged.
  [[nodiscard]] Passed pass(std::unique_ptr<RdmaPending>& request, const ResumeMessage& message,
                            std::span<const std::byte> bound, ae::EventLoop& here);

 private:
  struct Place {
    Home home;
    SipKey key{}, other_key{};
    std::uint32_t generation = 0;  // generation of the last request that was passed on
  };
  User* find(std::uint64_t id, const ae::EventLoop& here);
  void remove(std::uint64_t id) noexcept;
  void move(std::uint64_t id, const Home& home) noexcept;
  void set_keys(std::uint64_t id, const SipKey& key, const SipKey& other) noexcept;

  const ae::MadeHere made_here_;
  [[maybe_unused]] const SessionTable* const parents_;  // keeps the parent's table reachable
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Place> places_;
};

}}}  // namespace conn::rdma
