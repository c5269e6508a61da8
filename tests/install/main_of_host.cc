// SPDX-License-Identifier: BSD-3-Clause
// A tcp connection and an attempt with rdma, in a program that defines functions with the library's
// and libibverbs' names (host.cc).

#include <iostream>
#include <string>

#include "ae/libev_loop.h"
#include "ae/loop_names.h"
#include "conn/connection.h"
#include "conn/error.h"
#include "conn/transports/transports.h"

std::string host_says();
int calls_of_the_hosts_verbs();
void call_the_hosts_verbs();

int main() {
  if (ae::loops_named("libev") == nullptr) return 2;
  ae::LibevLoop loop;
  conn::Registry registry = conn::all_transports();
  conn::ConnectionPtr served;
  std::string heard;
  auto listener = registry.listen(loop, "tcp://127.0.0.1:0", [&](conn::ConnectionPtr connection) {
    served = std::move(connection);
    served->set_read_handler([&](conn::Connection& from) {
      char bytes[16];
      const auto got = from.read(bytes, sizeof bytes);
      if (got > 0) heard.append(bytes, static_cast<std::size_t>(got));
      if (got != 0) return;
      served.reset();
      loop.stop();
    });
  });
  auto client =
      registry.connect(loop, listener->endpoints().at(0).to_string(), [](conn::Connection& to) {
        to.write("hello", 5);
        to.shutdown();
      });
  loop.run();
  // With or without a device: the host's functions must not be called for it.
  try {
    const auto none = registry.listen(loop, "rdma://127.0.0.1:0", [](conn::ConnectionPtr) {});
  } catch (const conn::Error& error) {
    std::cout << error.what() << '\n';
  }
  const int by_the_library = calls_of_the_hosts_verbs();
  call_the_hosts_verbs();
  const int by_the_host = calls_of_the_hosts_verbs() - by_the_library;
  std::cout << heard << "; " << host_says() << "; " << by_the_library << ' ' << by_the_host << '\n';
  return heard == "hello" && host_says() == "the host's 1, 7, 3, 11" && by_the_library == 0 &&
                 by_the_host == 5
             ? 0
             : 1;
}
