// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Accepted sockets of trusted proxies whose header of the PROXY protocol has not arrived yet
// (option proxy-protocol). Reads exactly the header from the socket, so that the next byte read is
// the first of the client.

#include <chrono>
#include <list>
#include <string_view>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"
#include "conn/error.h"
#include "conn/kit/proxy_header.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class AwaitedHeaders {
 public:
  /// How long a PROXY header may take, from the moment when its socket was accepted.
  static constexpr ae::Duration kTimeout = std::chrono::seconds(10);

  /// Receives the sockets. Its functions may run handlers of the program, whose exceptions
  /// propagate, and may call functions of AwaitedHeaders, but must not destroy it.
  class Owner {
   public:
    /// Called with a socket whose PROXY header was read; Accepted::client is the address in it.
    virtual void header_arrived(Accepted socket) = 0;
    /// Called when a socket was closed, since its PROXY header was malformed, late or incomplete.
    virtual void header_failed(const Failure& why) = 0;
    /// Called when memory for a socket is missing; the socket is closed.
    virtual void header_lost() noexcept = 0;
    /// Whether a handler of the program runs; no other function of Owner may then be called.
    virtual bool busy() const noexcept = 0;

   protected:
    ~Owner() = default;
  };

  /// At most `most` sockets wait for their headers: adding one more closes the socket that has
  /// waited longest.
  AwaitedHeaders(Owner& owner, std::size_t most, ae::Duration timeout = kTimeout)
      : owner_(owner), most_(most), timeout_(timeout) {}
  AwaitedHeaders(const AwaitedHeaders&) = delete;
  AwaitedHeaders& operator=(const AwaitedHeaders&) = delete;
  ~AwaitedHeaders() { clear(); }

  /// Reads the socket's PROXY header now if it has arrived, otherwise as soon as it has. Must be
  /// called between watch() and unwatch().
  void add(Accepted socket);
  /// Begins to watch the sockets on this loop. Throws std::bad_alloc, and then does not watch them.
  void watch(ae::EventLoop& loop);
  /// Stops watching. Headers then stay in their sockets, and no socket is closed.
  void unwatch() noexcept;
  /// Closes all sockets.
  void clear() noexcept;

 private:
  struct Waiting {
    Accepted socket;
    ae::TimePoint deadline;
    ProxyHeaderReader header{};
    bool watched = false;
    ae::MadeHere made_here{};  // a child of fork() leaves the header to its parent
  };
  using Place = std::list<Waiting>::iterator;

  bool read(Place place);
  void watch(Place place);
  void set_timer();
  void expire();
  void fail(Place place, int err, std::string_view problem);
  Accepted take(Place place) noexcept;

  Owner& owner_;
  const std::size_t most_;
  const ae::Duration timeout_;
  std::list<Waiting> waiting_;     // in the order of their deadlines
  ae::EventLoop* loop_ = nullptr;  // the loop that watches the sockets; null: none does
  ae::TimerId timer_ = 0;
};

}}}  // namespace conn::tcp
