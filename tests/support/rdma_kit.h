// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests that need an RDMA device (tag [rdma-device]): a Site on it, an echo server that records
// how its connections ended, and the resources that the device and the process hold.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/raw_peer.h"
#include "tests/support/testing.h"

namespace testing {

Transport rdma_transport();
/// rdma://the device's address:0 with options, as in "linger=1s&window=64k".
conn::Endpoint rdma_endpoint(const std::string& options = {});
conn::Endpoint with_options(const conn::Endpoint& endpoint, const std::string& options);

/// Kernel objects on all RDMA devices, as `rdma resource show` counts them: {"qp", 3}, ...
using DeviceObjects = std::map<std::string, int>;
DeviceObjects device_objects();
std::size_t open_descriptors();
/// The value of one of the type's counters on this loop.
std::uint64_t counter(const conn::ConnectionType& type, ae::EventLoop& loop,
                      const std::string& name);

/// How soon an immediate effect must be visible: one second is promised and required in simulated
/// time; an emulated machine gets more.
ae::Duration promptly();
ae::TimePoint now();

/// Echoes, and records how each connection ended: its error, or "end of stream".
class EchoLog {
 public:
  conn::AcceptHandler handler();
  std::size_t open() const noexcept { return clients_.size(); }
  std::vector<std::string> endings;
  std::size_t accepted = 0;
  conn::Connection* newest = nullptr;
  conn::Connection* first = nullptr;
  void close(conn::Connection& connection) { clients_.erase(&connection); }
  void close_all() { clients_.clear(); }
  /// The first connection is the innocent client's.
  void close_all_but_first();

 private:
  struct Client {
    conn::ConnectionPtr connection;
    std::string backlog;
  };
  void on_readable(conn::Connection& connection);
  void on_writable(conn::Connection& connection);
  std::unordered_map<conn::Connection*, Client> clients_;
};

/// An echo server, an innocent client that must not be affected, and raw peers.
struct Scene : Site {
  explicit Scene(const std::string& options = {});
  ~Scene();
  /// Checks that the innocent connection still echoes, byte for byte.
  void innocent_echoes(std::size_t size = 3000);
  /// A connected raw client that has received a window.
  std::unique_ptr<RawPeer> raw_client(RawOptions options = {});

  EchoLog log;
  RawNet net{loop};
  conn::ListenerPtr listener;
  conn::Endpoint address;
  conn::ConnectionPtr innocent;
  unsigned round = 0;
};

/// A child process that runs `body`; killed and reaped by the destructor.
class Child {
 public:
  explicit Child(const std::function<void()>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void signal(int number) const;
  /// Waits for its end; returns its exit status.
  int wait();
  pid_t pid() const noexcept { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace testing
