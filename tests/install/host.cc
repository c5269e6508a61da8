// SPDX-License-Identifier: BSD-3-Clause
// A program with its own `ae` and `conn`, with functions of the same names and parameters as the
// library's, and with functions named like those of libibverbs and librdmacm, as in a program that
// replaces or wraps them. It does not use the library; main_of_host.cc uses both.

#include <string>
#include <string_view>

namespace ae {
class EventLoop {
 public:
  virtual ~EventLoop();
  virtual int turns() const;
};
EventLoop::~EventLoop() = default;
int EventLoop::turns() const { return 11; }
class LibevLoop {
 public:
  LibevLoop();
  void run();
};
LibevLoop::LibevLoop() = default;
void LibevLoop::run() {}
int loops_named(std::string_view name) { return static_cast<int>(name.size()); }
}  // namespace ae

namespace conn {
class Connection {
 public:
  virtual ~Connection();
  void close();
  int closed = 0;
};
Connection::~Connection() = default;
void Connection::close() { ++closed; }
int all_transports() { return 7; }
std::string errno_text(int err) { return "the host's " + std::to_string(err); }
}  // namespace conn

namespace {
int calls = 0;
}
extern "C" {
void* ibv_open_device(void*);
void* ibv_alloc_pd(void*);
int ibv_post_send(void*, void*, void**);
void* rdma_create_event_channel();
void** rdma_get_devices(int*);
void* ibv_open_device(void*) { return ++calls, nullptr; }
void* ibv_alloc_pd(void*) { return ++calls, nullptr; }
int ibv_post_send(void*, void*, void**) { return ++calls; }
void* rdma_create_event_channel() { return ++calls, nullptr; }
void** rdma_get_devices(int*) { return ++calls, nullptr; }
}

int calls_of_the_hosts_verbs() { return calls; }
void call_the_hosts_verbs() {
  ibv_open_device(nullptr);
  ibv_alloc_pd(nullptr);
  ibv_post_send(nullptr, nullptr, nullptr);
  rdma_create_event_channel();
  rdma_get_devices(nullptr);
}

std::string host_says() {
  ae::LibevLoop().run();
  conn::Connection connection;
  connection.close();
  return conn::errno_text(connection.closed) + ", " + std::to_string(conn::all_transports()) +
         ", " + std::to_string(ae::loops_named("abc")) + ", " +
         std::to_string(ae::EventLoop().turns());
}
