// SPDX-License-Identifier: BSD-3-Clause
// The parts of the modules for redis-server and valkey-server that need no server; the others are
// tested in tests/drop_ins.

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <string>
#include <thread>

#include "drop_ins/redis/host.h"
#include "tests/support/catch.h"

using namespace aeconn_redis;

namespace {

struct Object : ServerConnection {
  static void forget(ServerConnection*) {}
  ServerType theirs{};
  explicit Object(int socket) : ServerConnection{} {
    theirs.close = forget;
    type = &theirs;
    become_ours(this, host->registry().require("unix").adopt(host->loop(), socket), kConnected);
  }
};

}  // namespace

TEST_CASE("redis module: a thread of the server that reads outlives the module's end", "[redis]") {
  host = new Host;
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Object object(ends[0]);
  std::atomic<int> reads{0};
  std::atomic<bool> enough{false};
  int error = 0;
  std::thread reader([&] {
    char byte;
    while (!enough && object.type->read(&object, &byte, 1) < 0) {
      error = errno;
      (void)object.type->get_last_error(&object);
      ++reads;
    }
  });
  const auto more = [&] {
    for (const int before = reads; reads < before + 2;) std::this_thread::yield();
  };
  more();
  host->loop().dispatch();
  Host::end();
  more();
  enough = true;
  reader.join();
  CHECK(error == EAGAIN);
  CHECK(object.state == kConnected);
  object.type->close(&object);
  close(ends[1]);
}

TEST_CASE("redis module: whatever becomes of Valkey's rdma-port, INFO has an address to print",
          "[redis]") {
  host = new Host;
  host->set_urls("tcp://127.0.0.1:0");
  ServerListener listener{};
  char* no_address[kMaxBind] = {};  // the server's, without rdma-bind
  const auto set_port = [&](int port) {
    listener.bindaddr = no_address;
    listener.bindaddr_count = 0;
    listener.port = port;
    host->close_port(listener);
    try {
      if (port != 0) host->listen(listener);
    } catch (const std::exception&) {  // usually there is no device
    }
    REQUIRE(listener.bindaddr[0] != nullptr);
    return std::string(listener.bindaddr[0]);
  };
  server.listener = [](TypeName) {
    static ServerListener without_a_port{};
    return &without_a_port;
  };
  host->listen(listener);
  CHECK(listener.count == 1);
  CHECK(set_port(7777).starts_with("tcp://127.0.0.1:0"));
  CHECK(set_port(0) == "tcp://127.0.0.1:0");
  close(listener.fd[0]);
  Host::end();
}
