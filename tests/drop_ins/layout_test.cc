// SPDX-License-Identifier: BSD-3-Clause
// The checks of the module before it uses a server, with made-up servers whose tables are laid out
// like those of each release. Real servers: tests/drop_ins/redis.sh and misfit.c.
#include "drop_ins/redis/layout.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "drop_ins/redis/releases.h"
#include "tests/support/catch.h"

using namespace aeconn_redis;

namespace {

const std::vector<Version> versions = {
    {false, "7.2.6"}, {false, "7.4.1"}, {false, "8.0.2"}, {false, "8.2.3"}, {false, "8.4.0"},
    {false, "8.6.3"}, {true, "7.2.7"},  {true, "8.0.1"},  {true, "8.1.1"},  {true, "9.0.1"},
    {true, "9.1.0"},  {true, "9.1.1"},  {true, "9.1.2"},  {true, "9.1.12"}};

// What only types that need it have, in the releases.
const std::vector<Member> optional = {kInit,
                                      kCleanup,
                                      kConfigure,
                                      kUnbindEventLoop,
                                      kHasPendingData,
                                      kProcessPendingData,
                                      kPostponeUpdateState,
                                      kUpdateState,
                                      kSyncHandlersInUpdateState,
                                      kGetPeerCert,
                                      kGetPeerUser,
                                      kIntegrityChecked};
// Called by the check, so at another position a different function would be called.
const std::vector<Member> called = {kGetType, kConnCreate, kClose, kGetLastError};
bool is_one_of(const std::vector<Member>& them, Member member) {
  return std::find(them.begin(), them.end(), member) != them.end();
}

// A function that the check does not call.
void any() { std::abort(); }

/// A server of a release. One at a time.
struct MadeUp {
  static inline ServerType tcp, tls, rdma;
  alignas(void*) static inline char connection[kMaxConnection];
  alignas(void*) static inline char listeners[2 * (sizeof(ServerListener) + 2 * sizeof(void*))];
  static inline std::size_t apart;
  static inline bool has_tls, has_rdma;
  static inline int connections_open, first_fd;

  static ServerConnection* create(ServerLoop* loop) {
    auto* const c = reinterpret_cast<ServerConnection*>(connection);
    std::memset(connection, 0, sizeof connection);
    c->type = &tcp;
    c->fd = first_fd;
    c->iovcnt = IOV_MAX;
    if (layout->loops) loop_of(c) = loop;
    ++connections_open;
    return c;
  }
  static void fill(ServerType& type, bool is_tcp) {
    type = {};
    for (int i = 0; i < kMembers; ++i) {
      const auto member = static_cast<Member>(i);
      if (layout->has(member) && !(is_tcp && is_one_of(optional, member)))
        put(type, Slot<void()>{member}, any);
    }
    if (layout->has(kSyncHandlersInUpdateState))
      word(type, kSyncHandlersInUpdateState) = reinterpret_cast<void*>(is_tcp ? 0UL : 1UL);
    put(type, slots::close, [](ServerConnection*) { --connections_open; });
    put(type, slots::get_last_error,
        [](ServerConnection* of) -> const char* { return std::strerror(of->last_errno); });
    if (layout->loops)
      put(type, slots::conn_create_in_loop, create);
    else
      put(type, slots::conn_create, [] { return create(nullptr); });
    if (layout->numbered)
      put(
          type, slots::get_type_number, is_tcp ? [] { return 0; } : [] { return 2; });
    else
      put(
          type, slots::get_type_name,
          is_tcp ? [](ServerConnection*) { return "tcp"; }
                 : [](ServerConnection*) { return "tls"; });
  }
  static void*& word(ServerType& type, Member member) {
    return type.word[layout->position(member)];
  }
  static ServerListener* listener(std::size_t index) {
    return reinterpret_cast<ServerListener*>(listeners + index * apart);
  }
  static std::string fits() { return unfit("the server"); }

  explicit MadeUp(const Version& version) {
    layout = layout_for(version);
    REQUIRE(layout != nullptr);
    fill(tcp, true);
    fill(tls, false);
    std::memset(listeners, 0, sizeof listeners);
    connections_open = 0;
    apart = listener_size();
    has_tls = true;
    has_rdma = false;
    first_fd = -1;
    server = {};
    server.tcp = [] { return &tcp; };
    server.tls = [] { return has_tls ? &tls : nullptr; };
    if (layout->numbered) {
      server.type_by_id =
          reinterpret_cast<void*>(+[](int id) { return id == 3 && has_rdma ? &rdma : nullptr; });
      server.listener_by_id =
          reinterpret_cast<void*>(+[](int id) { return listener(static_cast<std::size_t>(id)); });
    } else {
      server.type_by_id = reinterpret_cast<void*>(+[](const char* name) {
        return std::strcmp(name, "rdma") == 0 && has_rdma ? &rdma : nullptr;
      });
      server.listener_by_id = reinterpret_cast<void*>(
          +[](const char* name) { return listener(std::strcmp(name, "tcp") == 0 ? 0 : 1); });
    }
  }
};

std::string refused(const std::string& what) {
  return what +
         " of this server are not laid out as those of the server: it is patched, or newer than "
         "this module; use a server without the patch, a newer aeconn, or aeconn-proxy in front of "
         "the server";
}
const std::string types = refused("types of connections");

/// The check's result after the same change in both tables.
std::string with(const Version& version, void (*change)(ServerType&, std::size_t),
                 std::size_t word) {
  const MadeUp made(version);
  for (ServerType* const type : {&MadeUp::tcp, &MadeUp::tls}) change(*type, word);
  return MadeUp::fits();
}

}  // namespace

TEST_CASE("redis module: each release that is served has a layout and no other has one",
          "[redis]") {
  for (const Version& version : versions) {
    INFO(version.name());
    CHECK(layout_for(version) != nullptr);
  }
  for (const char* const text :
       {"", "7.0.15", "7.1.0", "7.9.240", "8.1.240", "8.8.0", "9.0.1", "255.255.255", "8.0", "x"})
    CHECK(layout_for({false, text}) == nullptr);
  for (const char* const text : {"", "7.4.0", "8.2.0", "9.2.0", "255.255.255"})
    CHECK(layout_for({true, text}) == nullptr);
  CHECK(served_releases() ==
        "Redis 7.2, 7.4, 8.0, 8.2, 8.4, 8.6 and Valkey 7.2, 8.0, 8.1, 9.0, 9.1");
  // Three layouts of Redis, and five that only Valkey has.
  std::vector<const Layout*> layouts;
  for (const Version& version : versions) layouts.push_back(layout_for(version));
  std::sort(layouts.begin(), layouts.end());
  CHECK(std::unique(layouts.begin(), layouts.end()) - layouts.begin() == 8);
}

TEST_CASE("redis module: the table of a type has its members where each release has them",
          "[redis]") {
  const auto last = [](bool valkey, const char* text, Member member) {
    const Layout* const found = layout_for({valkey, text});
    CHECK(found->position(member) + 1 == found->words());
    return found->words();
  };
  CHECK(last(false, "7.2.6", kGetPeerCert) == 28);
  CHECK(last(false, "8.0.2", kGetPeerCert) == 30);
  CHECK(last(false, "8.6.3", kGetPeerUser) == 31);
  CHECK(last(true, "8.0.1", kGetPeerCert) == 30);
  CHECK(last(true, "8.1.1", kIntegrityChecked) == 32);
  CHECK(last(true, "9.0.1", kUpdateState) == 30);
  CHECK(last(true, "9.1.1", kIntegrityChecked) == 33);
  CHECK(last(true, "9.1.2", kIntegrityChecked) == 34);
  CHECK(layout_for({false, "8.0.2"})->position(kRebindEventLoop) == 26);
  CHECK(layout_for({true, "9.1.2"})->position(kConnCreate) == 10);
}

TEST_CASE("redis module: tables as they are in each release are taken", "[redis]") {
  for (const Version& version : versions) {
    INFO(version.name());
    const MadeUp made(version);
    CHECK(MadeUp::fits().empty());
    MadeUp::has_tls = false;  // a build without TLS
    CHECK(MadeUp::fits().empty());
    CHECK(MadeUp::connections_open == 0);
  }
}

TEST_CASE("redis module: a table of one release is refused where another was expected", "[redis]") {
  for (const Version& from : versions)
    for (const Version& to : versions) {
      const Layout *const found = layout_for(from), *const expected = layout_for(to);
      // What follows the last member that is expected is not looked at.
      const std::uint64_t looked_at = (std::bit_floor(expected->members) << 1) - 1;
      const std::uint64_t members = found->members & looked_at;
      if (members == expected->members || found->numbered != expected->numbered) continue;
      // As many functions, in the same places: "get_peer_cert" and "postpone_update_state".
      if (found == layout_for({true, "8.0.1"}) && !expected->loops && !expected->has(kUpdateState))
        continue;
      INFO(from.name() << " as " << to.name());
      const MadeUp made(from);
      layout = expected;
      CHECK(MadeUp::fits() == types);
    }
}

TEST_CASE("redis module: a Valkey with RDMA inside is refused for that and whatever its layout is",
          "[redis]") {
  for (const char* const text : {"8.1.1", "9.0.1", "9.1.2"}) {
    INFO(text);
    const MadeUp made({true, text});
    MadeUp::has_rdma = true;
    const std::string why =
        "this Valkey is built with RDMA, whose place in the server it would take";
    CHECK(MadeUp::fits() == why);
    MadeUp::word(MadeUp::tcp, kRead) = nullptr;
    CHECK(MadeUp::fits() == why);
    MadeUp::has_rdma = false;
    CHECK(MadeUp::fits() == types);
  }
  const MadeUp made({true, "8.0.1"});  // there ours has a name of its own
  MadeUp::has_rdma = true;
  CHECK(MadeUp::fits().empty());
}

TEST_CASE("redis module: a table with a function more or less is refused", "[redis]") {
  const auto more = [](ServerType& type, std::size_t at) {
    std::move_backward(type.word + at, std::end(type.word) - 1, std::end(type.word));
    type.word[at] = reinterpret_cast<void*>(&any);
  };
  const auto less = [](ServerType& type, std::size_t at) {
    std::move(type.word + at + 1, std::end(type.word), type.word + at);
    type.word[std::size(type.word) - 1] = nullptr;
  };
  for (const Version& version : versions) {
    const std::size_t words = layout_for(version)->words();
    for (std::size_t word = 0; word < words; ++word) {
      INFO(version.name() << ", word " << word);
      CHECK(with(version, more, word) == types);
      CHECK(with(version, less, word) == types);
    }
  }
}

TEST_CASE("redis module: functions that changed places are seen where tcp lacks one of them",
          "[redis]") {
  for (const Version& version : versions)
    for (int i = 0; i < kMembers; ++i)
      for (int k = i + 1; k < kMembers; ++k) {
        const auto one = static_cast<Member>(i), other = static_cast<Member>(k);
        const MadeUp made(version);
        if (!layout->has(one) || !layout->has(other)) continue;
        const bool lacks = is_one_of(optional, one);
        std::swap(MadeUp::word(MadeUp::tcp, one), MadeUp::word(MadeUp::tcp, other));
        INFO(version.name() << ", members " << i << " and " << k);
        if (lacks != is_one_of(optional, other)) {
          CHECK(MadeUp::fits() == types);
        } else if (!lacks && !is_one_of(called, one) && !is_one_of(called, other)) {
          CHECK(MadeUp::fits().empty());  // read() and write(), for example
        }
      }
}

TEST_CASE("redis module: each function that is not one is seen and a type that another has",
          "[redis]") {
  static int data = 0;
  for (const Version& version : versions) {
    for (std::size_t word = 0; word < layout_for(version)->words(); ++word) {
      INFO(version.name() << ", word " << word);
      for (void* const no_function : {static_cast<void*>(&data), reinterpret_cast<void*>(16)}) {
        const MadeUp made(version);
        MadeUp::tls.word[word] = no_function;
        CHECK(MadeUp::fits() == types);
      }
    }
    INFO(version.name());
    const MadeUp made(version);
    std::swap(MadeUp::word(MadeUp::tcp, kGetType), MadeUp::word(MadeUp::tls, kGetType));
    CHECK(MadeUp::fits() == types);
  }
  // A constant table, into which the module could not put its functions.
  const MadeUp made(versions.front());
  static const ServerType constant = {{reinterpret_cast<void*>(1)}};
  server.tcp = [] { return const_cast<ServerType*>(&constant); };
  CHECK(MadeUp::fits() == types);
}

TEST_CASE("redis module: connections and listeners that are laid out otherwise are refused",
          "[redis]") {
  for (const Version& version : versions) {
    INFO(version.name());
    const MadeUp made(version);
    MadeUp::first_fd = 0;
    CHECK(MadeUp::fits() == refused("connections"));
    MadeUp::first_fd = -1;
    put(MadeUp::tcp, slots::get_last_error, [](ServerConnection*) { return "other words"; });
    CHECK(MadeUp::fits() == refused("connections"));
    const MadeUp again(version);
    MadeUp::apart = listener_size() - 8;
    CHECK(MadeUp::fits() == refused("listeners"));
  }
  // A connection without the loop that its release has.
  const MadeUp made({false, "8.0.2"});
  put(MadeUp::tcp, slots::conn_create_in_loop, [](ServerLoop*) { return MadeUp::create(nullptr); });
  CHECK(MadeUp::fits() == refused("connections"));
}

TEST_CASE("redis module: the listener of tcp is looked at once it listens", "[redis]") {
  for (const Version& version : versions) {
    INFO(version.name());
    const MadeUp made(version);
    ServerListener& tcp = *MadeUp::listener(0);
    CHECK(MadeUp::fits().empty());
    CHECK(listeners_unfit().empty());  // the server has no port
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(socket >= 0);
    tcp.ct = &MadeUp::tcp;
    tcp.fd[0] = socket;
    tcp.count = tcp.bindaddr_count = 1;
    tcp.port = 6379;
    // A descriptor that does not listen is no listener.
    CHECK(listeners_unfit() == refused("listeners"));
    REQUIRE(::listen(socket, 1) == 0);
    CHECK(listeners_unfit().empty());
    const ServerListener fits = tcp;
    for (int* const number : {&tcp.count, &tcp.port, &tcp.bindaddr_count})
      for (const int wrong : {-1, 1 << 20}) {
        *number = wrong;
        CHECK(listeners_unfit() == refused("listeners"));
        tcp = fits;
      }
    tcp.ct = &MadeUp::tls;
    CHECK(listeners_unfit() == refused("listeners"));
    ::close(socket);
  }
}

TEST_CASE("redis module: a connection is given to the server with the flags of its release",
          "[redis]") {
  static std::string seen;
  static std::uint64_t flags;
  const auto check = [](const Version& version, auto accept) {
    INFO(version.name());
    const MadeUp made(version);
    server.accepted = reinterpret_cast<void*>(+accept);
    ServerConnection* const c = new_connection(nullptr);
    seen.clear();
    flags = 1;
    char ip[] = "192.0.2.7";
    accepted(c, ip);
    CHECK(seen == ip);
    CHECK(flags == 0);
  };
  struct One {
    std::uint64_t word;
  };
  struct Two {
    std::uint64_t word[2];
  };
  check({false, "8.0.2"}, [](ServerConnection*, int none, char* ip) {
    flags = static_cast<std::uint64_t>(none);
    seen = ip;
  });
  for (const char* const text : {"8.0.1", "8.1.1", "9.0.1"})
    check({true, text}, [](ServerConnection*, One none, char* ip) {
      flags = none.word;
      seen = ip;
    });
  check({true, "9.1.2"}, [](ServerConnection*, Two none, char* ip) {
    flags = none.word[0] | none.word[1];
    seen = ip;
  });
}
