// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_events.h"

#include <sys/epoll.h>

#include <array>
#include <new>

namespace conn::inline AECONN_ABI::tcp {
namespace {

constexpr int kBatch = 64;

}  // namespace

void SocketEvents::Item::leave() noexcept {
  if (events_ == nullptr) return;
  // The number alone would not do: whoever inherited the socket keeps it open, and in the instance.
  if (events_->owner_ == getpid()) (void)events_->control(EPOLL_CTL_DEL, *this);
  *link_ = next_;
  if (next_ != nullptr) next_->link_ = link_;
  events_ = nullptr;
  what_ = kNothing;
}

SocketEvents& SocketEvents::of(ae::EventLoop& loop) {
  static const char key = 0;
  std::unique_ptr<ae::LoopLocal>& slot = loop.local(&key);
  if (!slot) slot = std::make_unique<SocketEvents>(loop);
  return static_cast<SocketEvents&>(*slot);
}

SocketEvents::SocketEvents(ae::EventLoop& loop) : loop_(loop), owner_(getpid()) { open(); }

SocketEvents::~SocketEvents() {
  loop_.remove_file_event(epoll_.get(), ae::kReadable);
  while (head_ != nullptr) {
    Item& item = *head_;
    head_ = item.next_;
    item.events_ = nullptr;
    item.what_ = kNothing;
    item.over_ = true;
  }
}

void SocketEvents::open() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) throw std::bad_alloc();
  loop_.add_file_event(epoll.get(), ae::kReadable, [this](int, ae::Mask) { ready(); });
  epoll_ = std::move(epoll);
}

bool SocketEvents::control(int operation, Item& item) noexcept {
  epoll_event event{};
  // Told once for each time that it happens: a peer stays gone, and errors are taken from elsewhere
  // as well. EPOLLERR and EPOLLHUP need not be asked for.
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
  const bool known = item.events_ != nullptr;
  item.fd_ = fd;
  item.what_ = what;
  if (!control(known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, item) && !known) {
    item.what_ = kNothing;
    throw std::bad_alloc();
  }
  if (known) return;
  item.events_ = this;
  item.next_ = head_;
  item.link_ = &head_;
  if (head_ != nullptr) head_->link_ = &item.next_;
  head_ = &item;
}

/// In a child: an instance of its own.
void SocketEvents::renew() {
  if (owner_ == getpid()) return;
  loop_.remove_file_event(epoll_.get(), ae::kReadable);
  open();
  owner_ = getpid();
  for (Item* item = head_; item != nullptr; item = item->next_) (void)control(EPOLL_CTL_ADD, *item);
}

void SocketEvents::after_fork() noexcept {
  try {
    renew();
  } catch (const std::bad_alloc&) {  // until somebody is watched again
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

}  // namespace conn::inline AECONN_ABI::tcp
