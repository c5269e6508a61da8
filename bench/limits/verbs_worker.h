// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The loop of a verbs program: one completion queue, rdma_cm's events and a signal that ends it.

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sockets.h"
#include "verbs_link.h"

namespace limits {

struct CmEvent {
  rdma_cm_event_type type;
  rdma_cm_id* id;
  int status;
};

/// ADDRESS:PORT, in digits. Throws std::runtime_error.
sockaddr_storage parse_address(const std::string& text);

class Worker {
 public:
  /// With `spin` it never sleeps.
  explicit Worker(bool spin);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  virtual ~Worker();

  /// Until stop(), or SIGINT or SIGTERM.
  void run();

 protected:
  virtual void on_cm(const CmEvent& event) = 0;
  /// Once for each link that had completions, after all of them were taken.
  virtual void serve(Link& link) = 0;
  /// The link broke; it may be removed here.
  virtual void lost(Link& link) = 0;

  void stop() noexcept { over_ = true; }
  CmId create_id(void* context = nullptr);
  /// The device of the first connection. Others have to be on the same.
  Device& device(ibv_context* context);
  void add(Link& link) { links_[link.number()] = &link; }
  void remove(const Link& link) { links_.erase(link.number()); }
  /// Takes the completions there are. Not from serve() or lost().
  void settle();

 private:
  std::size_t poll();
  void flush();
  void look(int timeout_ms);
  void take_cm_events();

  bool spin_, over_ = false;
  Descriptor signal_;
  Epoll epoll_;
  CmChannel cm_;
  std::optional<Device> device_;
  std::unordered_map<std::uint32_t, Link*> links_;  // by the number of the queue pair
  std::vector<Link*> listed_;
};

}  // namespace limits
