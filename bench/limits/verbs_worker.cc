// SPDX-License-Identifier: BSD-3-Clause
#include "verbs_worker.h"

#include <fcntl.h>
#include <netdb.h>

#include <cstring>
#include <stdexcept>

namespace limits {
namespace {

constexpr std::size_t kPollSize = 32;
constexpr std::size_t kMostPolled = 256;  // before the replies are posted

}  // namespace

sockaddr_storage parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (colon == std::string::npos ||
      ::getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &found) != 0) {
    throw std::runtime_error("\"" + text + "\" is not ADDRESS:PORT");
  }
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

Worker::Worker(bool spin)
    : spin_(spin),
      signal_(end_signal()),
      cm_(made(rdma_create_event_channel(), "rdma_create_event_channel")) {
  if (::fcntl(cm_->fd, F_SETFL, O_NONBLOCK) != 0) fail("fcntl");
  epoll_.add(cm_->fd, EPOLLIN);
  epoll_.add(signal_.get(), EPOLLIN);
}

Worker::~Worker() = default;

CmId Worker::create_id(void* context) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(cm_.get(), &id, context, RDMA_PS_TCP) != 0) fail("rdma_create_id");
  return CmId(id);
}

Device& Worker::device(ibv_context* context) {
  if (!device_) {
    device_.emplace(context);
    epoll_.add(device_->fd(), EPOLLIN);
  } else if (device_->context() != context) {
    throw std::runtime_error("the connections are on more than one device");
  }
  return *device_;
}

// This order prevents lost wake-ups: read the event, poll until the queue is empty, arm, poll once
// more, sleep. An armed queue is not armed again.
void Worker::run() {
  std::size_t rounds = 0;
  while (!over_) {
    const std::size_t count = poll();
    flush();
    if (count > 0) {
      if (++rounds % 64 == 0) look(0);
    } else if (spin_ && device_) {
      if (++rounds % 1024 == 0) look(0);
    } else if (!device_ || !device_->arm()) {
      look(-1);
    }
  }
}

void Worker::settle() {
  while (poll() > 0) flush();
}

std::size_t Worker::poll() {
  if (!device_) return 0;
  std::array<ibv_wc, kPollSize> completions;
  std::size_t total = 0;
  for (;;) {
    const int polled = ibv_poll_cq(device_->cq(), kPollSize, completions.data());
    if (polled < 0) throw std::runtime_error("ibv_poll_cq failed");
    const auto count = static_cast<std::size_t>(polled);
    for (std::size_t i = 0; i < count; ++i) {
      const auto found = links_.find(completions[i].qp_num);
      if (found == links_.end()) {
        device_->give_back(completions[i]);
        continue;
      }
      Link& link = *found->second;
      link.take(completions[i]);
      if (link.listed_) continue;
      link.listed_ = true;
      listed_.push_back(&link);
    }
    total += count;
    if (count < kPollSize || total >= kMostPolled) return total;
  }
}

void Worker::flush() {
  for (Link* const link : listed_) {
    link->listed_ = false;
    if (!link->broken()) serve(*link);
    if (link->broken()) lost(*link);
  }
  listed_.clear();
}

void Worker::look(int timeout_ms) {
  std::array<epoll_event, 3> events;
  const int count = epoll_.wait(events.data(), events.size(), timeout_ms);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == signal_.get()) {
      stop();
    } else if (fd == cm_->fd) {
      take_cm_events();
    } else {
      device_->take_event();
    }
  }
}

void Worker::take_cm_events() {
  for (int i = 0; i < 64; ++i) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(cm_.get(), &event) != 0) return;
    const CmEvent copy{event->event, event->id, event->status};
    rdma_ack_cm_event(event);  // an id cannot be destroyed while an event of it is unacknowledged
    on_cm(copy);
  }
}

}  // namespace limits
