// SPDX-License-Identifier: BSD-3-Clause
// A program that has an `ae` and a `conn` of its own, with functions of our names and parameters.
// It knows nothing of the library; main_of_host.cc knows both.

#include <string>
#include <string_view>

namespace ae {
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

std::string host_says() {
  ae::LibevLoop().run();
  conn::Connection connection;
  connection.close();
  return conn::errno_text(connection.closed) + ", " + std::to_string(conn::all_transports()) +
         ", " + std::to_string(ae::loops_named("abc"));
}
