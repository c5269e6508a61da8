// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Joins two connections: data from one is written to the other, in both directions. There are no
// buffers besides those of the transports: a direction reads only what the other end accepts, so a
// slow reader costs one chunk of memory, or what its transport buffers, and slows the sender down.

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "conn/connection.h"

namespace proxy {

/// Sums over all relays of one loop.
struct Counters {
  std::uint64_t accepted = 0;  ///< clients accepted
  std::uint64_t joined = 0;    ///< clients for which the server was reached
  std::uint64_t failed = 0;    ///< clients for which the server was not reached
  std::uint64_t left = 0;      ///< clients that failed while the server was being reached
  std::uint64_t broken = 0;    ///< relays that an error ended after both sides were connected
  std::uint64_t idle = 0;      ///< relays closed by the idle time-out
  std::uint64_t upward = 0;    ///< bytes from clients
  std::uint64_t downward = 0;  ///< bytes to clients

  Counters& operator+=(const Counters& other) noexcept;
};

class Relay {
 public:
  /// The owner of relays.
  class Owner {
   public:
    /// Called when the relay has ended; `why` is empty for an ordinary end. The owner may destroy
    /// the relay in this call; the relay does not use `this` afterwards.
    virtual void over(Relay& relay, std::string_view why) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  Relay(Owner& owner, Counters& counters, conn::ConnectionPtr client);
  std::list<std::unique_ptr<Relay>>::iterator place;  ///< position in the owner's list
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  /// Closes what is still open; bytes already accepted are delivered.
  ~Relay();

  /// Connects to the server; meanwhile, data from the client stays in its transport. The server
  /// gets `greeting` before the client's data.
  void connect(conn::ConnectionPtr server, const conn::Endpoint& to, std::string greeting = {});
  /// Aborts both connections, so that the peers see a reset where the transport has one. The owner
  /// destroys the relay next.
  void abort() noexcept;
  /// Call this before destroying a relay that has not ended by itself. Aborts both connections,
  /// unless the relay is between two messages for all it knows: then they are closed.
  void cut_short() noexcept;
  const std::string& client_name() const noexcept { return client_name_; }
  /// The time when the last byte was passed on, or when the client was accepted.
  ae::TimePoint last_byte() const noexcept { return last_byte_; }

 private:
  struct Flow {
    conn::Connection* from = nullptr;
    conn::Connection* to = nullptr;
    std::uint64_t* counter = nullptr;
    bool ended = false;     ///< whether end of stream was passed on, or nothing more can be
    bool in_place = false;  ///< whether the receiver can provide memory to read into
    std::size_t piece = 0;  ///< bytes of memory to request from the receiver
  };
  template <typename Step>
  void attempt(const Step& step);
  void not_reached(std::string why) noexcept;
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
  void cut_after(ae::Duration delay, Flow& flow);
  void cut(Flow& flow);
  bool at_rest() const;
  bool at_rest(const Flow& flow) const;
  Flow& back(const Flow& flow) noexcept { return &flow == &up_ ? down_ : up_; }

  Owner& owner_;
  Counters& counters_;
  conn::ConnectionPtr client_, server_;
  std::string client_name_, greeting_;
  Flow up_, down_;
  bool joined_ = false;  ///< the server was reached
  ae::TimePoint last_byte_;
  /// after one end has failed: deadline for delivering the rest to the other
  ae::TimePoint cut_by_{};
  ae::TimerId timer_ = 0;  ///< timer that ends the relay at cut_by_; 0: not set
};

}  // namespace proxy
