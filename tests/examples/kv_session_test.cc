// SPDX-License-Identifier: BSD-3-Clause
// Sessions: complete conversations without I/O.

#include <algorithm>
#include <string>
#include <vector>

#include "examples/kv_server/session.h"
#include "tests/support/catch.h"
#include "tests/support/kv_kit.h"

using kv::Server;
using kv::Session;
using Progress = kv::Session::Progress;
using kv_kit::call;
using kv_kit::request;
using kv_kit::take;

namespace {

std::int64_t clock_us = 1'700'000'000'000'000;
std::int64_t test_clock() { return clock_us; }

kv::SessionInfo info(int number = 1) {
  return {"tcp", "10.0.0.1:" + std::to_string(number), "10.0.0.9:6379", number};
}

}  // namespace

TEST_CASE("session: every request split at every byte gets identical replies", "[kv]") {
  const std::string input =
      request({"SET", "k", std::string("a\0\r\nb", 5)}) + request({"GET", "k"}) + "PING\r\n" +
      request({"INCR", "n"}) + request({"FOO", "bar"}) + "SET q \"x y\"\r\n" +
      request({"MGET", "k", "q", "none"}) + request({"GET"}) + "*1\r\n$-5\r\n";
  const auto converse = [&](std::size_t first, std::size_t then) {
    Server server(test_clock);
    Session session(server, info());
    for (std::size_t at = 0, size = first; at < input.size(); at += size, size = then) {
      session.feed(input.substr(at, size));
      session.execute();
    }
    REQUIRE(session.wants_close());
    return take(session);
  };
  const std::string whole = converse(input.size(), input.size());
  REQUIRE(whole.ends_with("-ERR Protocol error: invalid bulk length\r\n"));
  REQUIRE(converse(1, 1) == whole);
  for (std::size_t cut = 1; cut < input.size(); ++cut) {
    REQUIRE(converse(cut, input.size()) == whole);
  }
}

TEST_CASE("session: a request like the last one gets the reply that it gets alone", "[kv]") {
  const std::vector<std::vector<std::string>> requests{{"GET", "key"},
                                                       {"get", "key"},
                                                       {"gEt", "key"},
                                                       {"GET"},
                                                       {"GET", "a", "b"},
                                                       {"GEX", "key"},
                                                       {"GE", "key"},
                                                       {"STRLEN", "key"},
                                                       {"CLIENT", "ID"},
                                                       {"CLIENT", "NO"},
                                                       {"CLIENT"},
                                                       {"client|id"},
                                                       {"CONFIG", "GET", ""},
                                                       {"PING"},
                                                       {"PING", "x"},
                                                       {"", "key"},
                                                       {"a_name_longer_than_sixteen", "key"},
                                                       {"MGET", "key"},
                                                       {"MGET", "key", "a"}};
  const auto alone = [](const std::vector<std::string>& arguments) {
    Server server(test_clock);
    Session session(server, info());
    (void)call(session, {"SET", "key", "value"});
    return call(session, arguments);
  };
  for (const auto& first : requests) {
    for (const auto& second : requests) {
      CAPTURE(first, second);
      Server server(test_clock);
      Session session(server, info());
      (void)call(session, {"SET", "key", "value"});
      REQUIRE(call(session, first) == alone(first));
      REQUIRE(call(session, second) == alone(second));
      REQUIRE(call(session, second) == alone(second));
    }
  }
}

TEST_CASE("session: values of any length are framed", "[kv]") {
  Server server(test_clock);
  Session session(server, info());
  for (const std::size_t size : {0, 1, 9, 10, 11, 99, 100, 101, 1000, 12345}) {
    const std::string value(size, 'v');
    REQUIRE(call(session, {"SET", "key", value}) == "+OK\r\n");
    REQUIRE(call(session, {"GET", "key"}) == kv_kit::bulk(value));
  }
}

TEST_CASE("session: a million pipelined PINGs run in bounded turns", "[kv][hostile]") {
  Server server(test_clock);
  Session session(server, info());
  std::size_t replies = 0, sent = 0;
  const std::string batch = "PING\r\nPING\r\nPING\r\nPING\r\n";
  while (replies < 1'000'000) {
    // Like the server: feeds input only when no output waits.
    while (sent < 1'000'000 && sent - replies < 2000) {
      session.feed(batch);
      sent += 4;
    }
    const Progress progress = session.execute(1000);
    const std::size_t count = take(session).size() / 7;
    REQUIRE(count <= 1000);
    REQUIRE((progress == Progress::kMore || replies + count == sent));
    replies += count;
    REQUIRE(server.buffer_bytes < 256 * 1024);
  }
  REQUIRE(replies == 1'000'000);
}

TEST_CASE("session: announcing much allocates nothing", "[kv][hostile]") {
  Server server(test_clock);
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 1000; ++i) {
    sessions.push_back(std::make_unique<Session>(server, info(i)));
    sessions.back()->feed(i % 2 == 0 ? "*1000000\r\n" : "*2\r\n$4\r\nECHO\r\n$536870912\r\nabc");
    sessions.back()->execute();
    (void)sessions.back()->room();  // as for the next read
  }
  REQUIRE(server.buffer_bytes <= 1000 * 32768);
}

TEST_CASE("session: a client that does not read its replies is given up", "[kv][hostile]") {
  Server server(test_clock);
  server.config.client_output_limit = 1 << 20;
  Session session(server, info());
  call(session, {"SET", "big", std::string(300'000, 'x')});
  for (int i = 0; i < 4; ++i) {
    session.feed(request({"GET", "big"}));
    session.execute();
    REQUIRE_FALSE(session.killed());
  }
  session.feed(request({"GET", "big"}));
  REQUIRE(session.execute() == Progress::kDone);
  REQUIRE(session.killed());
  REQUIRE(server.statistics.output_limit_closed == 1);
  // A single reply of any size is allowed.
  Session other(server, info(2));
  call(other, {"SET", "huge", std::string(3'000'000, 'x')});
  REQUIRE(call(other, {"GET", "huge"}).size() > 3'000'000);
}

TEST_CASE("session: writes fail above maxmemory, reads and deletes go on", "[kv]") {
  Server server(test_clock);
  Session session(server, info());
  server.config.maxmemory = 400'000;
  const std::string oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
  std::string reply;
  int stored = 0;
  while ((reply = call(session, {"SET", "k" + std::to_string(stored), std::string(1000, 'x')})) ==
         "+OK\r\n") {
    REQUIRE(++stored < 1000);
  }
  REQUIRE(reply == oom);
  REQUIRE(stored > 200);
  REQUIRE(call(session, {"APPEND", "k0", "x"}) == oom);
  REQUIRE(call(session, {"STRLEN", "k0"}) == ":1000\r\n");
  for (int i = 0; i < 50; ++i) call(session, {"DEL", "k" + std::to_string(i)});
  REQUIRE(call(session, {"SET", "again", "x"}) == "+OK\r\n");
}

TEST_CASE("session: without the password nothing but AUTH, HELLO and QUIT works", "[kv]") {
  Server server(test_clock);
  server.config.requirepass = "secret";
  Session session(server, info());
  REQUIRE(call(session, {"GET", "a"}) == "-NOAUTH Authentication required.\r\n");
  REQUIRE(call(session, {"PING"}) == "-NOAUTH Authentication required.\r\n");
  REQUIRE(call(session, {"HELLO", "3"}).starts_with("-NOAUTH HELLO must be called"));
  REQUIRE(call(session, {"AUTH", "wrong"}).starts_with("-WRONGPASS"));
  REQUIRE(call(session, {"AUTH", "root", "secret"}).starts_with("-WRONGPASS"));
  REQUIRE(call(session, {"AUTH", "default", "secret"}) == "+OK\r\n");
  REQUIRE(call(session, {"PING"}) == "+PONG\r\n");
  Session other(server, info(2));
  REQUIRE(call(other, {"HELLO", "3", "AUTH", "default", "secret"}).starts_with("%7\r\n"));
}

TEST_CASE("session: the password of CONFIG SET is overwritten in the request", "[kv][hostile]") {
  Server server(test_clock);
  Session session(server, info());
  std::string bytes = kv_kit::request({"CONFIG", "SET", "REQUIREPASS", "secret"});
  session.show(bytes);
  session.execute();
  REQUIRE(kv_kit::take(session) == "+OK\r\n");
  REQUIRE(bytes.find("secret") == std::string::npos);
  REQUIRE(call(session, {"AUTH", "secret"}) == "+OK\r\n");
}

TEST_CASE("session: guessing passwords is slowed down", "[kv][hostile]") {
  Server server(test_clock);
  server.config.requirepass = "secret";
  Session session(server, info());
  session.feed(request({"AUTH", "a"}) + request({"AUTH", "b"}) + request({"AUTH", "c"}) +
               request({"AUTH", "secret"}));
  REQUIRE(session.execute() == Progress::kHeld);
  REQUIRE(take(session).find("+OK") == std::string::npos);
  REQUIRE(session.execute() == Progress::kHeld);
  clock_us += 100'000;
  REQUIRE(session.execute() == Progress::kIdle);
  REQUIRE(take(session) == "+OK\r\n");
}

TEST_CASE("session: a browser's request closes the connection without a reply", "[kv][hostile]") {
  Server server(test_clock);
  std::string logged;
  server.together.log = [&](std::string_view text) { logged = text; };
  for (const char* line : {"POST / HTTP/1.1\r\n", "Host: localhost\r\n"}) {
    Session session(server, info());
    session.feed(line);
    REQUIRE(session.execute() == Progress::kDone);
    REQUIRE(session.killed());
    REQUIRE(session.pending_output().empty());
    REQUIRE(logged.find("HTTP request") != std::string::npos);
  }
}

TEST_CASE("session: a client that speaks TLS is told of, however its bytes are cut",
          "[kv][hostile]") {
  const std::string hello("\x16\x03\x01\x02\x00\r\nPING\r\n", 13);
  for (std::size_t first = 1; first < hello.size(); ++first) {
    CAPTURE(first);
    Server server(test_clock);
    std::string told;
    server.together.log = [&](std::string_view line) { told += line; };
    Session session(server, info());
    for (std::size_t at = 0, size = first; at < hello.size(); at += size, size = 1) {
      session.show(std::string_view(hello).substr(at, size));  // like the network part
      if (session.execute() == Progress::kDone) break;
    }
    REQUIRE(session.killed());
    REQUIRE(take(session).empty());
    REQUIRE(told == "tcp 10.0.0.1:1 speaks TLS; this port is plain: use a tls:// one");
  }
}

TEST_CASE("session: log lines are limited", "[kv][hostile]") {
  Server server(test_clock);
  int lines = 0;
  server.together.log = [&](std::string_view) { ++lines; };
  for (int i = 0; i < 1000; ++i) {
    Session session(server, info());
    session.feed("*1\r\n$-1\r\n");
    session.execute();
  }
  REQUIRE(lines <= 10);
}

TEST_CASE("session: CLIENT LIST and INFO name transports, CLIENT KILL ends others", "[kv]") {
  Server server(test_clock);
  Session a(server, {"tcp", "10.0.0.1:1", "10.0.0.9:6379", 7});
  Session b(server, {"rdma", "10.0.0.2:2", "10.0.0.9:6379", -1});
  server.transports = [] {
    return std::vector<conn::SchemeStatistics>{{"rdma", {{"accepted", 1}}}};
  };
  std::vector<const Session*> killed;
  server.session_killed = [&](Session& session) { killed.push_back(&session); };
  const std::string list = call(a, {"CLIENT", "LIST"});
  REQUIRE(list.find("id=1 addr=10.0.0.1:1 laddr=10.0.0.9:6379 fd=7 ") != std::string::npos);
  REQUIRE(list.find("transport=tcp\nid=2 ") != std::string::npos);
  REQUIRE(list.find("transport=rdma\n") != std::string::npos);
  const std::string report = call(a, {"INFO"});
  REQUIRE(report.find("connected_clients:2\r\n") != std::string::npos);
  REQUIRE(report.find("# Transport_rdma\r\naccepted:1\r\n") != std::string::npos);
  REQUIRE(call(a, {"CLIENT", "KILL", "ID", "1"}) == ":0\r\n");  // the requester
  REQUIRE_FALSE(a.killed());
  REQUIRE(call(a, {"CLIENT", "KILL", "ID", "2"}) == ":1\r\n");
  REQUIRE(killed == std::vector<const Session*>{&b});
  REQUIRE(call(a, {"CLIENT", "KILL", "ID", "2"}) == ":0\r\n");
  REQUIRE(call(a, {"CLIENT", "LIST"}).find("id=2 ") == std::string::npos);
}

TEST_CASE("session: CLIENT INFO adds what the transport says, as it is now, on one line", "[kv]") {
  Server server(test_clock);
  int unsent = 0;
  kv::SessionInfo info{"tls", "10.0.0.1:1", "10.0.0.9:6379", 7};
  info.facts = [&unsent] {
    return kv::SessionInfo::Facts{{"server-name", "a b\nid=2 flags=N"},
                                  {"fd", "7"},
                                  {"unsent", std::to_string(++unsent)},
                                  {"device", ""}};
  };
  Session session(server, info);
  const std::string before = call(session, {"CLIENT", "INFO"});
  REQUIRE(before.find(" transport=tls server-name=a_b?id=2_flags=N unsent=1 device=\n") !=
          std::string::npos);
  // The same fields as for a harmless name, and one line in the bulk string.
  REQUIRE(std::count(before.begin(), before.end(), '\n') == 3);
  REQUIRE(before.find(" id=2") == std::string::npos);
  REQUIRE(before.find(" flags=N ") == before.rfind(" flags=N"));
  REQUIRE(before.find(" fd=7 ") == before.rfind("fd=7") - 1);
  REQUIRE(call(session, {"CLIENT", "INFO"}).find(" unsent=2 ") != std::string::npos);
  // CLIENT LIST is called often, for many clients: its lines stay short.
  REQUIRE(call(session, {"CLIENT", "LIST"}).find(" transport=tls\n") != std::string::npos);
}

TEST_CASE("session: QUIT answers, and nothing after it runs", "[kv]") {
  Server server(test_clock);
  Session session(server, info());
  session.feed(request({"QUIT"}) + request({"SET", "a", "b"}));
  REQUIRE(session.execute() == Progress::kDone);
  REQUIRE(take(session) == "+OK\r\n");
  REQUIRE(server.store.size() == 0);
}

TEST_CASE("session: RESP3 has its own nulls, maps and texts", "[kv]") {
  Server server(test_clock);
  Session session(server, info());
  REQUIRE(call(session, {"HELLO", "3"}).starts_with("%7\r\n$6\r\nserver\r\n"));
  REQUIRE(call(session, {"GET", "none"}) == "_\r\n");
  REQUIRE(call(session, {"CONFIG", "GET", "save"}) == "%1\r\n$4\r\nsave\r\n$0\r\n\r\n");
  REQUIRE(call(session, {"INFO", "keyspace"}) == "=16\r\ntxt:# Keyspace\r\n\r\n");
}

TEST_CASE("session: idle clients are closed after the time-out and give memory back", "[kv]") {
  Server server(test_clock);
  Session session(server, info());
  call(session, {"PING"});
  REQUIRE(server.buffer_bytes > 0);
  clock_us += 3'000'000;
  server.tick();
  REQUIRE(server.buffer_bytes == 0);
  server.config.timeout_seconds = 10;
  clock_us += 20'000'000;
  server.tick();
  REQUIRE(session.killed());
}

TEST_CASE("session: DEBUG SLEEP has to be allowed, and refuses what is no time", "[kv]") {
  Server server(test_clock);
  Session session(server, info());
  REQUIRE(call(session, {"DEBUG", "SLEEP", "0"}).starts_with("-ERR DEBUG command not allowed"));
  server.config.debug_command = true;
  REQUIRE(call(session, {"DEBUG", "SLEEP", "0"}) == "+OK\r\n");
  for (const char* wrong : {"-1", "x", "3601", "nan"})
    REQUIRE(call(session, {"DEBUG", "SLEEP", wrong}) == "-ERR value is not a valid float\r\n");
}

TEST_CASE("session: addresses are asked for once, when somebody wants to know", "[kv]") {
  Server server(test_clock);
  int asked = 0;
  Session session(server, [&asked] {
    ++asked;
    return info(7);
  });
  call(session, {"SET", "a", "b"});
  call(session, {"GET", "a"});
  REQUIRE(asked == 0);
  REQUIRE(call(session, {"CLIENT", "INFO"}).find("addr=10.0.0.1:7 ") != std::string::npos);
  call(session, {"CLIENT", "LIST"});
  REQUIRE(asked == 1);
}
