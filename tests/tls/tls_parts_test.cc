// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: unit tests of small components.
#if AECONN_TLS

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "conn/tls/engine/files.h"
#include "conn/tls/loop_state.h"
#include "conn/tls/session_store.h"
#include "conn/tls/settings.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"
#include "tests/support/testing.h"
#include "tests/support/tls_kit.h"

using namespace std::chrono_literals;

TEST_CASE("tls: a client keeps sessions of 1024 peers, those that it asked for last",
          "[tls][resumption][limits]") {
  const auto session = [](int version) {
    conn::tls::SessionPtr made(SSL_SESSION_new());
    const unsigned char id = 1;
    REQUIRE(SSL_SESSION_set1_id(made.get(), &id, 1) == 1);
    REQUIRE(SSL_SESSION_set_protocol_version(made.get(), version) == 1);
    return made;
  };
  conn::tls::SessionStore store;
  for (int i = 0; i < 1024; ++i) store.put(std::to_string(i), session(TLS1_2_VERSION));
  REQUIRE(store.take("0"));  // not removed: a session of TLS 1.2
  store.put("one more", session(TLS1_3_VERSION));
  REQUIRE_FALSE(store.take("1"));
  REQUIRE(store.take("0"));
  REQUIRE(store.take("2"));
  REQUIRE(store.take("one more"));
  REQUIRE_FALSE(store.take("one more"));  // sessions of TLS 1.3 are used once
}

TEST_CASE("tls: what is not given is what Settings has by itself", "[tls][options]") {
  const conn::tls::Settings parsed = conn::tls::parse_settings({}), plain;
  CHECK(parsed.min_version == plain.min_version);
  CHECK(parsed.max_version == plain.max_version);
  CHECK(parsed.crl_check == plain.crl_check);
  CHECK(parsed.auth_clients == plain.auth_clients);
  CHECK(parsed.verify == plain.verify);
  CHECK(parsed.resumption == plain.resumption);
  CHECK(parsed.peer_user == plain.peer_user);
}

TEST_CASE("tls: options that are times arrive where they belong", "[tls][options]") {
  const conn::tls::Settings settings = conn::tls::parse_settings({{"handshake-timeout", "11s"},
                                                                  {"connect-timeout", "12s"},
                                                                  {"linger", "13s"},
                                                                  {"end-linger", "14s"},
                                                                  {"session-timeout", "15s"},
                                                                  {"ticket-rotation", "16s"}});
  REQUIRE(settings.handshake_timeout == 11s);
  REQUIRE(settings.connect_timeout == 12s);
  REQUIRE(settings.linger == 13s);
  REQUIRE(settings.end_linger == 14s);
  REQUIRE(settings.session_timeout == 15s);
  REQUIRE(settings.ticket_rotation == 16s);
}

TEST_CASE("tls: what is not used for a while gives its buffers back, once", "[tls]") {
  struct Buffers final : conn::tls::Warm {
    void cool() override { ++given_back; }
    int given_back = 0;
  };
  testing::TlsSite site;
  auto& state = conn::tls::LoopState::of(site.server, site.loop);
  Buffers idle;
  state.warm(idle);
  RUN_UNTIL(site.loop, idle.given_back > 0);
  REQUIRE(idle.given_back == 1);
  REQUIRE_FALSE(idle.linked());
}

TEST_CASE("tls: many connections that become idle at once give their buffers back in portions",
          "[tls]") {
  struct Buffers final : conn::tls::Warm {
    void cool() override { ++*given_back; }
    std::size_t* given_back = nullptr;
  };
  testing::TlsSite site;
  auto& state = conn::tls::LoopState::of(site.server, site.loop);
  std::size_t given_back = 0, before = 0, most = 0;
  std::vector<Buffers> idle(1000), busy(300);
  for (auto* const some : {&idle, &busy}) {
    for (Buffers& one : *some) {
      one.given_back = &given_back;
      state.warm(one);
    }
  }
  RUN_UNTIL(site.loop, [&] {  // looks after each iteration
    most = std::max(most, given_back - std::exchange(before, given_back));
    for (Buffers& one : busy) state.warm(one);
    return given_back >= idle.size();
  }());
  CHECK(most <= 256);
  testing::turns(site.loop, 10);
  CHECK(given_back == idle.size());
  for (const Buffers& one : busy) REQUIRE(one.linked());
}

TEST_CASE("tls: a pass phrase may be one letter", "[tls][options]") {
  const testing::TempFolder folder;
  const std::string file = testing::write_file(folder, "phrase", "x");
  REQUIRE(conn::tls::read_pass_phrase(file).view() == "x");
}

#endif  // AECONN_TLS
