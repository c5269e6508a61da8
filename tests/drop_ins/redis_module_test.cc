// SPDX-License-Identifier: BSD-3-Clause
// The parts of the modules for redis-server and valkey-server that need no server; the others are
// tested in tests/drop_ins.

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <thread>

#include "drop_ins/redis/host.h"
#include "drop_ins/redis/module_api.h"
#include "drop_ins/redis/releases.h"
#include "tests/support/catch.h"
#include "tests/support/like_host_and_port.h"

using namespace aeconn_redis;

extern "C" int RedisModule_OnLoad(Context* context, Text** arguments, int count);

namespace {

/// A connection of a server of that release, made ours.
struct Object {
  alignas(void*) char bytes[kMaxConnection]{};
  ServerType theirs{};
  Object(const Version& version, int socket) {
    layout = layout_for(version);
    make_our_type();
    put(theirs, slots::close, [](ServerConnection*) {});
    self()->type = &theirs;
    become_ours(self(), host->registry().require("unix").adopt(host->loop(), socket), kConnected);
  }
  ServerConnection* self() { return reinterpret_cast<ServerConnection*>(bytes); }
  template <class Function>
  Function* call(Slot<Function> slot) {
    return get(self()->type, slot);
  }
};

}  // namespace

TEST_CASE("redis module: a thread of the server that reads outlives the module's end", "[redis]") {
  host = new Host;
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Object object({true, "9.1.2"}, ends[0]);
  std::atomic<int> reads{0};
  std::atomic<bool> enough{false};
  int error = 0;
  std::thread reader([&] {
    char byte;
    while (!enough && object.call(slots::read)(object.self(), &byte, 1) < 0) {
      error = errno;
      (void)object.call(slots::get_last_error)(object.self());
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
  CHECK(object.self()->state == kConnected);
  object.call(slots::close)(object.self());
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
  layout = layout_for({true, "9.1.2"});
  server.listener_by_id = reinterpret_cast<void*>(+[](int) {
    static ServerListener without_a_port{};
    return &without_a_port;
  });
  host->listen(listener);
  CHECK(listener.count == 1);
  CHECK(set_port(7777).starts_with("tcp://127.0.0.1:0"));
  CHECK(set_port(0) == "tcp://127.0.0.1:0");
  close(listener.fd[0]);
  Host::end();
}

TEST_CASE("redis module: handlers are where each layout of connections has them", "[redis]") {
  for (const Version& version : {Version{false, "7.4.1"}, Version{false, "8.0.2"}}) {
    INFO(version.name());
    host = new Host;
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    Object object(version, ends[0]);
    const std::size_t words = sizeof(ServerConnection) / sizeof(void*) + (layout->loops ? 1 : 0);
    auto* const at = reinterpret_cast<ServerHandler*>(object.bytes) + words;
    const ServerHandler readable = [](ServerConnection*) {}, writable = [](ServerConnection*) {};
    CHECK(object.call(slots::set_write_handler)(object.self(), writable, 1) == kOk);
    CHECK(object.call(slots::set_read_handler)(object.self(), readable) == kOk);
    CHECK(at[0] != nullptr);  // where ours keeps its state
    CHECK(at[1] == writable);
    CHECK(at[2] == readable);
    CHECK(object.self()->flags == kWriteBarrier);
    object.call(slots::close)(object.self());
    CHECK(at[0] == nullptr);
    Host::end();
    close(ends[1]);
  }
}

TEST_CASE("redis module: a client over a Unix socket has no port, whatever its name looks like",
          "[redis]") {
  host = new Host;
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  testing::bind_like_host_and_port(ends[1]);
  Object object({true, "9.1.2"}, ends[0]);
  char ip[50] = "";
  int port = 1;
  CHECK(object.call(slots::addr)(object.self(), ip, sizeof ip, &port, 1) == kOk);
  CHECK(std::string(ip) == testing::kLikeHostAndPort);
  CHECK(port == 0);
  object.call(slots::close)(object.self());
  Host::end();
  close(ends[1]);
}

namespace {

std::string said_to_log;

void old_log(Context*, const char*, const char* form, ...) {
  va_list list;
  va_start(list, form);
  char text[500];
  std::vsnprintf(text, sizeof text, form, list);
  va_end(list);
  said_to_log = text;
}
void old_attributes(Context*, const char*, int, int) {}

/// The functions for modules that a server without GetServerInfo() has.
int old_function(const char* name, void* at) {
  void* found = nullptr;
  if (name == std::string_view("RedisModule_Log"))
    found = reinterpret_cast<void*>(old_log);
  else if (name == std::string_view("RedisModule_SetModuleAttribs"))
    found = reinterpret_cast<void*>(old_attributes);
  else
    return 1;
  std::memcpy(at, &found, sizeof found);
  return 0;
}

}  // namespace

TEST_CASE("redis module: a server that does not tell modules its version is refused in a sentence",
          "[redis]") {
  // By definition the first member of a context is the function that finds others.
  struct {
    int (*find)(const char*, void*) = old_function;
  } context;
  const auto before = api;
  api = {};
  said_to_log.clear();
  CHECK(RedisModule_OnLoad(reinterpret_cast<Context*>(&context), nullptr, 0) == 1);
  api = before;
  CHECK_THAT(said_to_log, testing::Contains("this is a server without a version"));
}
