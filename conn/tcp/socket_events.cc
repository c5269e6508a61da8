// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_events.h"

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <new>

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

constexpr int kBatch = 64;
constexpr ae::Duration kAgain = std::chrono::milliseconds(100), kNever = std::chrono::hours(8760);

}  // namespace

void SocketEvents::Item::leave() noexcept {
  if (events_ == nullptr) return;
  // The socket is removed from the epoll instance here. Closing the descriptor would not be enough:
  // if another process inherited the socket, it stays open and in the epoll instance.
  if (events_->owner_ == getpid()) (void)events_->control(EPOLL_CTL_DEL, *this);
  *link_ = next_;
  if (next_ != nullptr) next_->link_ = link_;
  events_ = nullptr;
  what_ = kNothing;
  added_ = false;
}

SocketEvents& SocketEvents::of(ae::EventLoop& loop) {
  static const char key = 0;
  std::unique_ptr<ae::LoopLocal>& slot = loop.local(&key);
  if (!slot) slot = std::make_unique<SocketEvents>(loop);
  return static_cast<SocketEvents&>(*slot);
}

SocketEvents::SocketEvents(ae::EventLoop& loop) : loop_(loop), owner_(getpid()) {
  open();
  try {
    again_ = loop_.add_time_event(epoll_ ? kNever : kAgain, [this] { return try_again(); });
  } catch (const std::bad_alloc&) {
    if (epoll_) loop_.remove_file_event(epoll_.get(), ae::kReadable);
    throw;
  }
}

SocketEvents::~SocketEvents() {
  loop_.remove_time_event(again_);
  if (epoll_) loop_.remove_file_event(epoll_.get(), ae::kReadable);
  while (head_ != nullptr) {
    Item& item = *head_;
    head_ = item.next_;
    item.events_ = nullptr;
    item.what_ = kNothing;
    item.over_ = true;
  }
}

/// Creates the epoll instance. Leaves `epoll_` empty if the process has no free descriptor for it.
void SocketEvents::open() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return;
  loop_.add_file_event(epoll.get(), ae::kReadable, [this](int, ae::Mask) { ready(); });
  epoll_ = std::move(epoll);
}

bool SocketEvents::control(int operation, Item& item) noexcept {
  epoll_event event{};
  // Edge-triggered, because these conditions last: a closed peer stays closed, and the error queue
  // is also read by other code. EPOLLERR and EPOLLHUP are reported without being requested.
  event.events = EPOLLET;
  if ((item.what_ & kPeerGone) != 0) event.events |= EPOLLRDHUP;
  event.data.ptr = &item;
  return ::epoll_ctl(epoll_.get(), operation, item.fd_, &event) == 0;
}

void SocketEvents::watch(ae::EventLoop& loop, Item& item, int fd, unsigned what) {
  if (what == item.what_ || item.over_) return;
  if (what == kNothing) return item.leave();
  of(loop).set(item, fd, what);
}

void SocketEvents::set(Item& item, int fd, unsigned what) {
  renew();
  item.fd_ = fd;
  item.what_ = what;
  if (item.events_ == nullptr) {
    item.events_ = this;
    item.next_ = head_;
    item.link_ = &head_;
    if (head_ != nullptr) head_->link_ = &item.next_;
    head_ = &item;
  }
  if (!item.added_) {
    item.added_ = control(EPOLL_CTL_ADD, item);
  } else {
    (void)control(EPOLL_CTL_MOD, item);
  }
  if (!item.added_) (void)loop_.again(again_, kAgain);
}

/// Replaces the epoll instance by a new one in a forked child, which must not change the instance
/// that it shares with its parent.
void SocketEvents::renew() {
  if (owner_ == getpid()) return;
  if (epoll_) loop_.remove_file_event(epoll_.get(), ae::kReadable);
  epoll_.reset();
  for (Item* item = head_; item != nullptr; item = item->next_) item->added_ = false;
  owner_ = getpid();
  (void)loop_.again(again_, kAgain);
  open();
  add_missing();
}

void SocketEvents::add_missing() noexcept {
  for (Item* item = head_; item != nullptr; item = item->next_)
    if (!item->added_) item->added_ = control(EPOLL_CTL_ADD, *item);
}

/// Tries again to create the epoll instance and to register the sockets that it lacks. Returns the
/// time until the next try. Registering a socket also reports events that happened earlier.
ae::Duration SocketEvents::try_again() noexcept {
  after_fork();
  try {
    if (!epoll_) open();
  } catch (const std::bad_alloc&) {
  }
  if (!epoll_) return kAgain;
  add_missing();
  for (const Item* item = head_; item != nullptr; item = item->next_)
    if (!item->added_) return kAgain;
  return kNever;
}

void SocketEvents::after_fork() noexcept {
  try {
    renew();
  } catch (const std::bad_alloc&) {
    // There is no memory to watch the new epoll instance: the timer again_ tries again.
  }
}

void SocketEvents::ready() {
  after_fork();
  if (owner_ != getpid()) return;
  std::array<epoll_event, kBatch> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), kBatch, 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    static_cast<Item*>(event.data.ptr)
        ->on_socket_event((event.events & (EPOLLRDHUP | EPOLLHUP)) != 0,
                          (event.events & EPOLLERR) != 0);
  }
}

}}}  // namespace conn::tcp
