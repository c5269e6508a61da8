// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reports two socket events that a file event of the loop cannot: the peer has closed while no read
// handler is set, and the error queue is not empty. Each loop has one epoll instance for them,
// watched by the loop and created with the first connection that needs it.

#include <memory>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class SocketEvents final : public ae::LoopLocal {
 public:
  enum What : unsigned { kNothing = 0, kPeerGone = 1, kErrors = 2 };

  /// Receives the events of one socket. Its destructor unregisters it; the end of the loop
  /// unregisters every Item of the loop.
  class Item {
   public:
    Item() = default;
    Item(const Item&) = delete;
    Item& operator=(const Item&) = delete;
    /// Called from the loop, once for each event; must not run handlers of the program.
    /// `peer_gone`: the peer has closed or reset the connection. `error`: the socket has an error,
    /// or its error queue is not empty.
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
    bool added_ = false;  // true if this item is registered with the epoll instance
    bool over_ = false;   // true if the event loop of this item has been destroyed
  };

  /// Watches `fd` on `loop` for `what`, a bitwise OR of What; kNothing stops watching. Watching
  /// must be stopped before the descriptor is closed. If the kernel refuses because it lacks
  /// descriptors or memory, the registration is retried until it succeeds. Throws std::bad_alloc,
  /// but not if the item was already watched.
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
  // The process that created the epoll instance. A forked child shares the instance with its parent
  // and must not change it.
  pid_t owner_;
  Item* head_ = nullptr;
  // Timer that retries failed registrations. It always exists, because creating it could fail;
  // without failed registrations it is set to a year.
  ae::TimerId again_ = 0;
};

}}}  // namespace conn::tcp
