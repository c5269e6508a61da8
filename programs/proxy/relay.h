// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Two connections joined: what comes from one leaves by the other, both ways. Nothing is copied
// into buffers of its own: a direction reads only what the other end takes, so a slow reader costs
// one chunk of memory, or what its transport buffers, and slows the sender down.

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "conn/connection.h"

namespace proxy {

/// Of all relays of one loop.
struct Counters {
  std::uint64_t accepted = 0;  ///< clients
  std::uint64_t joined = 0;    ///< of them: the other side was reached
  std::uint64_t failed = 0;    ///< was not reached
  std::uint64_t broken = 0;    ///< ended by an error, after they were joined
  std::uint64_t idle = 0;      ///< ended for want of bytes
  std::uint64_t upward = 0;    ///< bytes from clients
  std::uint64_t downward = 0;  ///< and to them

  Counters& operator+=(const Counters& other) noexcept;
};

class Relay {
 public:
  /// Who owns relays.
  class Owner {
   public:
    /// Ends it: `why` is empty for an ordinary end. The owner may destroy the relay in here; it
    /// does not touch itself any more.
    virtual void over(Relay& relay, const std::string& why) = 0;

   protected:
    ~Owner() = default;
  };

  Relay(Owner& owner, Counters& counters, conn::ConnectionPtr client);
  std::list<std::unique_ptr<Relay>>::iterator place;  ///< the owner's
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  /// Closes what is open: bytes that were taken are still delivered.
  ~Relay();

  /// Reaches the other side; bytes of the client wait in its transport meanwhile.
  void connect(conn::ConnectionPtr server, const conn::Endpoint& to);
  /// Both ends are to see that this is no clean end. The owner destroys the relay next.
  void abort() noexcept;
  const std::string& client_name() const noexcept { return client_name_; }
  /// When the last byte passed, or the client came.
  ae::TimePoint last_byte() const noexcept { return last_byte_; }

 private:
  struct Flow {
    conn::Connection* from = nullptr;
    conn::Connection* to = nullptr;
    std::uint64_t* counter = nullptr;
    bool ended = false;     ///< its end of stream was passed on, or nothing can be any more
    bool in_place = false;  ///< the receiver has memory of its own to read into
    std::size_t piece = 0;  ///< of which so much is asked for
  };
  template <typename Step>
  void attempt(const Step& step);
  void join();
  void watch(Flow& flow);
  void pump(Flow& flow);
  ssize_t pass_on(Flow& flow);
  ssize_t receive_into(Flow& flow);
  ssize_t nothing_read(Flow& flow, int error);
  ssize_t nothing_written(Flow& flow);
  void wait_for_room(Flow& flow);
  void give_up(Flow& flow);
  void end(Flow& flow);
  void hear_of_failure(Flow& flow);
  void failed(Flow& flow);
  void drop(Flow& flow);
  void cut(Flow& flow);
  Flow& back(const Flow& flow) noexcept { return &flow == &up_ ? down_ : up_; }

  Owner& owner_;
  Counters& counters_;
  conn::ConnectionPtr client_, server_;
  std::string client_name_;
  Flow up_, down_;
  ae::TimePoint last_byte_;
  ae::TimePoint cut_by_{};  ///< one end has failed; until then the other may take the rest
  ae::TimerId timer_ = 0;   ///< for that
};

}  // namespace proxy
