// SPDX-License-Identifier: BSD-3-Clause
// Checks of the module for Valkey before it uses the server, with a made-up server whose tables are
// laid out like Valkey 9.1's. The variant for Redis, which the unit tests are linked with, is
// tested in the real server: tests/drop_ins/misfit.c.
#define AECONN_VALKEY
#define aeconn_redis aeconn_valkey
#include "drop_ins/redis/layout.cc"

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace aeconn_valkey {
Server server;
}

using namespace aeconn_valkey;

namespace {

// A function in a table that the check does not call.
struct AnyFunction {
  template <class Result, class... Arguments>
  using Pointer = Result (*)(Arguments...);
  template <class Result, class... Arguments>
  constexpr operator Pointer<Result, Arguments...>() const {
    return [](Arguments...) -> Result { return Result(); };
  }
};
inline constexpr AnyFunction any;
ServerConnection connection;  // the one that is checked
int connections_open = 0;

constexpr ServerType as_tcp() {
  ServerType type{};
  type.get_type = [] { return 0; };
  type.ae_handler = any;
  type.accept_handler = any;
  type.addr = any;
  type.is_local = any;
  type.listen = any;
  type.close_listener = any;
  type.conn_create = any;
  type.conn_create_accepted = any;
  type.shutdown = any;
  type.close = [](ServerConnection*) { --connections_open; };
  type.connect = any;
  type.blocking_connect = any;
  type.accept = any;
  type.write = any;
  type.writev = any;
  type.read = any;
  type.set_write_handler = any;
  type.set_read_handler = any;
  type.get_last_error = [](ServerConnection* of) -> const char* {
    return std::strerror(of->last_errno);
  };
  type.sync_write = any;
  type.sync_read = any;
  type.sync_readline = any;
  return type;
}
constexpr ServerType kTcp = as_tcp();
constexpr ServerType as_tls(ServerType type) {
  type.get_type = [] { return 2; };
  type.init = type.cleanup = any;
  type.configure = any;
  type.has_pending_data = type.process_pending_data = any;
  type.postpone_update_state = any;
  type.update_state = any;
  type.sync_handlers_in_update_state = 1;
  type.get_peer_cert = any;
  type.get_peer_user = any;
  type.integrity_checked = any;
  return type;
}
constexpr ServerType kTls = as_tls(kTcp);

constexpr std::size_t kWords = sizeof(ServerType) / sizeof(void*);
using Words = std::array<void*, kWords>;
Words words_of(const ServerType& type) {
  Words words;
  std::memcpy(words.data(), &type, sizeof type);
  return words;
}
ServerType of_words(const Words& words) {
  ServerType type;
  std::memcpy(&type, words.data(), sizeof type);
  return type;
}
// The position of each member, in words.
#define WORD(member) (offsetof(ServerType, member) / sizeof(void*))
const std::vector<std::size_t> absent_in_tcp = {WORD(init),
                                                WORD(cleanup),
                                                WORD(configure),
                                                WORD(has_pending_data),
                                                WORD(process_pending_data),
                                                WORD(postpone_update_state),
                                                WORD(update_state),
                                                WORD(sync_handlers_in_update_state),
                                                WORD(get_peer_cert),
                                                WORD(get_peer_user),
                                                WORD(integrity_checked)};
// Called by the check, so at another position a different function would be called.
const std::vector<std::size_t> called = {WORD(get_type), WORD(conn_create), WORD(close),
                                         WORD(get_last_error)};
bool is_one_of(const std::vector<std::size_t>& them, std::size_t word) {
  return std::find(them.begin(), them.end(), word) != them.end();
}

struct MadeUp {
  static inline ServerType tcp, tls, rdma;
  static inline ServerListener listeners[2];
  static inline std::size_t apart;
  static inline bool has_tls, has_rdma;
  static inline int first_fd;

  MadeUp() {
    tcp = kTcp, tls = kTls;
    tcp.conn_create = [] {
      connection = {};
      connection.type = &tcp;
      connection.fd = first_fd;
      connection.iovcnt = IOV_MAX;
      ++connections_open;
      return &connection;
    };
    listeners[0] = listeners[1] = {};
    connections_open = 0;
    apart = sizeof(ServerListener);
    has_tls = true;
    has_rdma = false;
    first_fd = -1;
    server = {};
    server.tcp = [] { return &tcp; };
    server.tls = [] { return has_tls ? &tls : nullptr; };
    server.type_by_name = [](TypeName) { return has_rdma ? &rdma : nullptr; };
    server.listener = [](TypeName type) {
      char* const at = reinterpret_cast<char*>(listeners) + static_cast<std::size_t>(type) * apart;
      return reinterpret_cast<ServerListener*>(at);
    };
  }
};

const std::string types =
    "types of connections of this server are not laid out as those of its version";

/// The check's result after the same change in both tables.
std::string with(void (*change)(Words&, std::size_t), std::size_t word) {
  const MadeUp made;
  for (ServerType* const type : {&MadeUp::tcp, &MadeUp::tls}) {
    Words words = words_of(*type);
    change(words, word);
    *type = of_words(words);
  }
  return unfit();
}

}  // namespace

TEST_CASE("valkey module: tables as they are in Valkey 9.1 are taken", "[redis]") {
  const MadeUp made;
  CHECK(unfit().empty());
  MadeUp::has_tls = false;  // a build without TLS
  CHECK(unfit().empty());
  CHECK(connections_open == 0);
}

TEST_CASE("valkey module: a Valkey with RDMA inside is refused for that, whatever its layout is",
          "[redis]") {
  const MadeUp made;
  MadeUp::has_rdma = true;
  const std::string why = "this Valkey is built with RDMA, whose place in the server it would take";
  CHECK(unfit() == why);
  MadeUp::tcp.read = nullptr;
  CHECK(unfit() == why);
  MadeUp::has_rdma = false;
  CHECK(unfit() == types);
}

TEST_CASE("valkey module: a table with a function more or less is refused", "[redis]") {
  const auto more = [](Words& words, std::size_t at) {
    std::move_backward(words.begin() + static_cast<std::ptrdiff_t>(at), words.end() - 1,
                       words.end());
    words[at] = reinterpret_cast<void*>(&std::abort);
  };
  const auto less = [](Words& words, std::size_t at) {
    std::move(words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end(),
              words.begin() + static_cast<std::ptrdiff_t>(at));
    words.back() = nullptr;
  };
  for (std::size_t word = 0; word <= WORD(get_peer_cert); ++word) {
    INFO("word " << word);
    CHECK(with(more, word) == types);
    if (word != WORD(get_peer_cert)) CHECK(with(less, word) == types);
  }
}

TEST_CASE("valkey module: functions that changed places are seen where tcp lacks one of them",
          "[redis]") {
  for (std::size_t one = 0; one < kWords; ++one)
    for (std::size_t other = one + 1; other < kWords; ++other) {
      const bool lacks = is_one_of(absent_in_tcp, one);
      if (lacks == is_one_of(absent_in_tcp, other)) {
        // read() and write(), or has_pending_data() and process_pending_data(), cannot be
        // distinguished.
        if (lacks || is_one_of(called, one) || is_one_of(called, other)) continue;
        const MadeUp made;
        Words words = words_of(MadeUp::tcp);
        std::swap(words[one], words[other]);
        MadeUp::tcp = of_words(words);
        CHECK(unfit().empty());
        continue;
      }
      INFO("words " << one << " and " << other);
      const MadeUp made;
      Words words = words_of(MadeUp::tcp);
      std::swap(words[one], words[other]);
      MadeUp::tcp = of_words(words);
      CHECK(unfit() == types);
    }
}

TEST_CASE("valkey module: each function that is not one is seen, and a type that another has",
          "[redis]") {
  int data = 0;
  for (std::size_t word = 0; word < kWords; ++word) {
    INFO("word " << word);
    for (void* const no_function : {static_cast<void*>(&data), reinterpret_cast<void*>(16)}) {
      const MadeUp made;
      Words words = words_of(MadeUp::tls);
      words[word] = no_function;
      MadeUp::tls = of_words(words);
      CHECK(unfit() == types);
    }
  }
  const MadeUp made;
  MadeUp::tcp.get_type = [] { return 1; };
  CHECK(unfit() == types);
  MadeUp::tcp.get_type = [] { return 0; };
  MadeUp::tls.get_type = [] { return 3; };
  CHECK(unfit() == types);
  // A constant table, into which the module could not put its functions.
  server.tcp = [] { return const_cast<ServerType*>(&kTcp); };
  CHECK(unfit() == types);
}

TEST_CASE("valkey module: connections and listeners that are laid out otherwise are refused",
          "[redis]") {
  const MadeUp made;
  MadeUp::first_fd = 0;
  CHECK(unfit() == "connections of this server are not laid out as those of its version");
  MadeUp::first_fd = -1;
  MadeUp::tcp.get_last_error = [](ServerConnection*) { return "other words"; };
  CHECK(unfit() == "connections of this server are not laid out as those of its version");
  const MadeUp again;
  MadeUp::apart = sizeof(ServerListener) - 8;
  CHECK(unfit() == "listeners of this server are not laid out as those of its version");
}

TEST_CASE("valkey module: the listener of tcp, once it listens, is looked at", "[redis]") {
  const MadeUp made;
  ServerListener& tcp = MadeUp::listeners[0];
  CHECK(listeners_fit());  // the server has no port
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(socket >= 0);
  tcp.ct = &MadeUp::tcp;
  tcp.fd[0] = socket;
  tcp.count = tcp.bindaddr_count = 1;
  tcp.port = 6379;
  CHECK_FALSE(listeners_fit());  // a descriptor that does not listen is no listener
  REQUIRE(::listen(socket, 1) == 0);
  CHECK(listeners_fit());
  const ServerListener fits = tcp;
  for (int* const number : {&tcp.count, &tcp.port, &tcp.bindaddr_count})
    for (const int wrong : {-1, 1 << 20}) {
      *number = wrong;
      CHECK_FALSE(listeners_fit());
      tcp = fits;
    }
  tcp.ct = &MadeUp::tls;
  CHECK_FALSE(listeners_fit());
  ::close(socket);
}
