// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The event loop of a verbs program: one completion queue, rdma_cm's events and a signal that ends
// it.

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

/// Parses a numeric ADDRESS:PORT. Throws std::runtime_error.
sockaddr_storage parse_address(const std::string& text);

class Worker {
 public:
  /// With `spin` it polls without sleeping.
  explicit Worker(bool spin);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  virtual ~Worker();

  /// Runs until stop(), SIGINT or SIGTERM.
  void run();

 protected:
  virtual void on_cm(const CmEvent& event) = 0;
  /// Called once per link that had completions, after all of them were handled.
  virtual void serve(Link& link) = 0;
  /// The link is broken; it may be removed in this call.
  virtual void lost(Link& link) = 0;

  void stop() noexcept { over_ = true; }
  CmId create_id(void* context = nullptr);
  /// The device of the first connection. All others must use the same device.
  Device& device(ibv_context* context);
  void add(Link& link) { links_[link.number()] = &link; }
  void remove(const Link& link) { links_.erase(link.number()); }
  /// Handles the available completions. Must not be called from serve() or lost().
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
  std::unordered_map<std::uint32_t, Link*> links_;  // by queue pair number
  std::vector<Link*> listed_;
};

}  // namespace limits
