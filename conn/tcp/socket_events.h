// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a loop cannot be asked of a socket: that its peer has closed while nobody reads, and that
// its error queue has something. One epoll instance for each loop, which the loop watches; made
// with the first connection that asks.

#include <memory>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class SocketEvents final : public ae::LoopLocal {
 public:
  enum What : unsigned { kNothing = 0, kPeerGone = 1, kErrors = 2 };

  /// Whom to tell. Leaves by itself when it is destroyed, and is left when the loop ends.
  class Item {
   public:
    Item() = default;
    Item(const Item&) = delete;
    Item& operator=(const Item&) = delete;
    /// From the loop, once for each time that something happens; must run no handler of a user.
    /// `error`: the socket has one, or something stands in its error queue.
    virtual void on_socket_event(bool peer_gone, bool error) noexcept = 0;
    unsigned watched() const noexcept { return what_; }
    void leave() noexcept;

   protected:
    virtual ~Item() { leave(); }

   private:
    friend class SocketEvents;
    SocketEvents* events_ = nullptr;
    Item* next_ = nullptr;
    Item** link_ = nullptr;
    int fd_ = -1;
    unsigned what_ = kNothing;
    bool added_ = false;  // to the epoll instance
    bool over_ = false;   // the loop ends
  };

  /// Watches `fd` on `loop` for what is asked, a sum of What; kNothing ends it. It must be watched
  /// no more when the descriptor is closed. Where the kernel refuses, for want of a descriptor or
  /// of its memory, it is asked again until it does not. Throws std::bad_alloc, where it was not
  /// watched before.
  static void watch(ae::EventLoop& loop, Item& item, int fd, unsigned what);

  explicit SocketEvents(ae::EventLoop& loop);
  ~SocketEvents() override;
  void after_fork() noexcept override;

 private:
  static SocketEvents& of(ae::EventLoop& loop);
  void set(Item& item, int fd, unsigned what);
  void open();
  void renew();
  void add_missing() noexcept;
  ae::Duration try_again() noexcept;
  bool control(int operation, Item& item) noexcept;
  void ready();

  ae::EventLoop& loop_;
  Fd epoll_;
  pid_t owner_;  // a child shares the instance with its parent, and must leave it alone
  Item* head_ = nullptr;
  ae::TimerId again_ = 0;  // there from the beginning; due while the kernel refuses something
};

}}}  // namespace conn::tcp
