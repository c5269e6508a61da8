// SPDX-License-Identifier: BSD-3-Clause
// What a connection with option resume keeps without a path (Session), and the table in which
// requests find it (SessionTable), without devices; what the stream does with a new path.
#if AECONN_RDMA

#include "conn/rdma/session.h"

#include <malloc.h>
#include <sys/syscall.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conn/rdma/protocol/stream.h"
#include "conn/rdma/session_table.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/stream_bench.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using namespace std::chrono_literals;

const ae::TimePoint kStart{1000s};

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_of(const Unsent& unsent) {
  const auto bytes = unsent.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Session lost_session(ae::Duration time = 10s) {
  Session session({.session = 1, .key = {}}, time);
  session.lose(Phase::kOpen, {std::make_error_code(std::errc::timed_out), "why"}, kStart, 0s);
  return session;
}

TEST_CASE("rdma session: unsent bytes keep their order", "[rdma][session]") {
  Unsent unsent;
  CHECK(unsent.empty());
  unsent.prepend(bytes_of("def"));
  unsent.append(bytes_of("gh").data(), 2);
  unsent.drop(1);
  CHECK(text_of(unsent) == "efgh");
  unsent.prepend(bytes_of("abcd"));
  CHECK(text_of(unsent) == "abcdefgh");
  unsent.drop(8);
  CHECK(unsent.empty());
  unsent.append(bytes_of("i").data(), 1);
  CHECK(text_of(unsent) == "i");
}

TEST_CASE("rdma session: unsent bytes that were dropped take no memory", "[rdma][session]") {
  Unsent unsent;
  const std::vector<std::byte> piece(4096);
  const auto in_use = [] {
    const auto info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  unsent.append(piece.data(), piece.size());
  const std::size_t before = in_use();
  for (int i = 0; i < 10'000; ++i) {
    unsent.append(piece.data(), piece.size());
    unsent.drop(piece.size());
  }
  CHECK(unsent.size() == piece.size());
  CHECK(in_use() < before + 64 * piece.size());  // 0 with a sanitizer's malloc()
}

TEST_CASE("rdma session: the peer's count is between what it has confirmed and what was posted",
          "[rdma][session]") {
  Session session = lost_session();
  session.keep(100, 106, bytes_of("0123456789"));
  CHECK_FALSE(session.take_count(99));
  CHECK_FALSE(session.take_count(107));
  CHECK_FALSE(session.take_count(~std::uint64_t{0}));
  CHECK(session.confirmed() == 100);
  CHECK(text_of(session.unsent()) == "0123456789");
  CHECK(session.take_count(104));
  CHECK(text_of(session.unsent()) == "456789");
  CHECK_FALSE(session.take_count(103));  // it cannot have less than it said before
  CHECK(session.take_count(104));
  CHECK(session.take_count(106));
  CHECK(text_of(session.unsent()) == "6789");
}

TEST_CASE("rdma session: bytes of a path that is lost early may have been counted",
          "[rdma][session]") {
  Session session = lost_session();
  session.keep(0, 6, bytes_of("012345"));
  CHECK(session.take_count(2));
  session.unsent().drop(1);  // one byte is sent again on the next path, which is lost
  session.lose(Phase::kResending, {}, kStart + 1s, 0s);
  session.keep(2, 3, bytes_of("2"));
  CHECK(text_of(session.unsent()) == "2345");
  CHECK(session.take_count(6));  // all that was ever posted
  CHECK(session.unsent().empty());
}

TEST_CASE("rdma session: the low half of the peer's count says how many bytes it misses",
          "[rdma][session]") {
  const std::uint64_t confirmed = GENERATE(0u, 100u, 0xfffffffeu, 0x1fffffffeu);
  CAPTURE(confirmed);
  Session session = lost_session();
  session.keep(confirmed, confirmed + 6, bytes_of("0123456789"));
  CHECK(session.total() == confirmed + 10);
  const auto missed = [&](std::uint64_t counted) {
    return session.missed_by(static_cast<std::uint32_t>(counted));
  };
  CHECK(missed(confirmed) == 10);
  CHECK(missed(confirmed + 1) == 9);
  CHECK(missed(confirmed + 6) == 4);
  CHECK(missed(confirmed + 7) == 10);  // more than was posted
  CHECK(missed(confirmed - 1) == 10);
  CHECK(session.take_count(confirmed + 6));
  CHECK(missed(confirmed + 6) == 4);
  CHECK(session.total() == confirmed + 10);
  session.unsent().append(bytes_of("ab").data(), 2);
  CHECK(session.total() == confirmed + 12);
}

TEST_CASE("rdma session: each request has a later generation than the last", "[rdma][session]") {
  Session session = lost_session();
  CHECK_FALSE(session.take_generation(0));
  CHECK(session.take_generation(1));
  CHECK_FALSE(session.take_generation(1));
  CHECK(session.take_generation(7));
  CHECK_FALSE(session.take_generation(6));
  CHECK(session.take_generation(~std::uint32_t{0}));
  Session client = lost_session();
  CHECK(client.begin_attempt() == 1);  // the address after that of the lost path
  CHECK(client.next_generation() == 1);
  CHECK(client.next_generation() == 2);  // it asks again in the same attempt
  CHECK(client.begin_attempt() == 2);
  client.on_address(5);
  client.prefer_same_address();
  CHECK(client.begin_attempt() == 5);
}

TEST_CASE("rdma session: pauses double up to the longest, and never reach beyond the time",
          "[rdma][session]") {
  Session session = lost_session();
  CHECK(session.next_at() == kStart);
  ae::TimePoint now = kStart;
  std::vector<ae::Duration> pauses;
  while (session.plan_next(now, false)) {
    pauses.push_back(session.next_at() - now);
    now = session.next_at();
  }
  REQUIRE(pauses.size() > 6);
  CHECK(pauses[0] == 25ms);
  CHECK(pauses[1] == 50ms);
  CHECK(pauses[5] == 500ms);
  CHECK(pauses[6] == 500ms);
  CHECK(now == kStart + 10s);
  CHECK(session.until() == kStart + 10s);
}

TEST_CASE("rdma session: attempts end after two seconds in which nobody listened",
          "[rdma][session]") {
  Session session = lost_session();
  CHECK(session.plan_next(kStart + 1s, true));
  CHECK(session.plan_next(kStart + 2900ms, true));
  SECTION("at a stretch") { CHECK_FALSE(session.plan_next(kStart + 3s, true)); }
  SECTION("with another failure between") {
    CHECK(session.plan_next(kStart + 2950ms, false));
    CHECK(session.plan_next(kStart + 3s, true));
    CHECK(session.plan_next(kStart + 4900ms, true));
    CHECK_FALSE(session.plan_next(kStart + 5s, true));
  }
  SECTION("on another path") {
    session.on_path();
    session.lose(Phase::kOpen, {}, kStart + 3s, 0s);
    CHECK(session.plan_next(kStart + 4s, true));
  }
}

TEST_CASE("rdma session: a loss while another lasts keeps time, reason and phase",
          "[rdma][session]") {
  Session session = lost_session();
  session.resume_as(Phase::kHalfClosed);
  session.lose(Phase::kResending, {std::make_error_code(std::errc::io_error), "later"}, kStart + 1s,
               5s);
  CHECK(session.until() == kStart + 10s);
  CHECK(session.why().text == "why");
  CHECK(session.resumes_as() == Phase::kHalfClosed);
  CHECK(session.left_by() == kStart + 1s + Session::kQuietTime);
  session.give_up_at(kStart + 2s);
  session.give_up_at(kStart + 3s);
  CHECK(session.until() == kStart + 2s);
  session.on_path();
  CHECK_FALSE(session.lost());
  CHECK(session.resumes() == 1);
}

// --- the stream ----------------------------------------------------------------------------------

TEST_CASE("rdma stream: an end that waits is not sent before bytes that are sent again",
          "[rdma][session]") {
  Stream stream({.role = Role::kClient}, kStart);
  stream.on_hello({.flags = Hello::kFinishes});
  const auto ends = [&] {
    for (std::uint32_t i = 0; const auto message = stream.next_control(kStart, i); ++i)
      if (message->select == kFinished) return true;
    return false;
  };
  REQUIRE(stream.outbound().finish(true));
  REQUIRE(ends());
  stream.inbound().leave_windows(nullptr);
  stream.begin_path(0, kStart);
  CHECK_FALSE(ends());
  CHECK(stream.outbound().finish(true));  // once those bytes are posted
  CHECK(ends());
}

TEST_CASE("rdma stream: an end that resumes tells a close from the end of its stream",
          "[rdma][session]") {
  const bool resumes = GENERATE(true, false);
  CAPTURE(resumes);
  Stream stream({.role = Role::kClient}, kStart), peer({.role = Role::kServer}, kStart);
  for (Stream* each : {&stream, &peer}) {
    each->on_hello({.flags = Hello::kFinishes});
    if (resumes) each->set_resumes();
  }
  const auto exchange = [&] {
    std::vector<std::uint16_t> selects;
    while (const auto message = stream.next_control(kStart)) {
      stream.on_control_posted(*message, kStart);
      if (message->opcode != Opcode::kSetClientFeature) continue;
      selects.push_back(message->select);
      peer.on_control(encode(*message), kStart);
    }
    return selects;
  };
  using Selects = std::vector<std::uint16_t>;
  (void)exchange();
  REQUIRE(stream.outbound().finish(false));
  CHECK_FALSE(stream.outbound().end().finished(false));
  CHECK(exchange() == Selects{resumes ? kShutDown : kFinished});
  CHECK(stream.outbound().end().finished(false));
  CHECK(stream.outbound().end().finished(true) == !resumes);
  CHECK_FALSE(stream.outbound().finish(false));
  CHECK(peer.peer_end().finished());
  CHECK(peer.peer_end().leaves() == !resumes);
  CHECK(stream.outbound().finish(true) == resumes);
  CHECK(exchange() == (resumes ? Selects{kFinished} : Selects{}));
  CHECK(stream.outbound().end().finished(true));
  CHECK_FALSE(stream.outbound().finish(true));
  CHECK(peer.peer_end().leaves());
  CHECK(peer.failure() == nullptr);
}

TEST_CASE("rdma stream: the silence of a path is no failure if the stream resumes",
          "[rdma][session]") {
  const bool resumes = GENERATE(true, false);
  Stream stream({.role = Role::kClient}, kStart);
  stream.on_hello({.flags = Hello::kSendsKeepalives, .keepalive_ms = 1000});
  if (resumes) stream.set_resumes();
  stream.tick(kStart + 3200ms, false);
  CHECK(stream.liveness().dead() == nullptr);
  CHECK(stream.failure() == nullptr);
  stream.tick(kStart + 3300ms, false);
  CHECK(stream.liveness().dead() != nullptr);
  CHECK((stream.failure() == nullptr) == resumes);
  if (!resumes) return;
  stream.inbound().leave_windows(nullptr);
  stream.begin_path(0, kStart + 4s);
  CHECK(stream.liveness().dead() == nullptr);
  stream.tick(kStart + 5s, false);
  CHECK(stream.liveness().dead() == nullptr);
}

TEST_CASE("rdma stream: a failure for want of memory ends with its path", "[rdma][session]") {
  Stream stream({.role = Role::kClient}, kStart);
  stream.no_window(kStart);
  REQUIRE(stream.failure() != nullptr);
  stream.inbound().leave_windows(nullptr);
  stream.begin_path(0, kStart);
  CHECK(stream.failure() == nullptr);
}

// Goal: a peer that loses its path again and again while nobody reads cannot send without end.
TEST_CASE("rdma stream: bytes of lost paths count as the windows that held them",
          "[rdma][stream][session]") {
  test::Bench bench(Role::kServer);
  std::vector<std::byte> left, before;  // the copy that is read now, and the one before
  const auto lose = [&] {
    std::swap(left, before);
    left.resize(bench.stream.inbound().unread_bytes());
    bench.stream.inbound().leave_windows(left.data());
    bench.memory.clear();
    bench.stream.begin_path(0, bench.now);
  };
  bench.offer();
  bench.data("12345678");
  lose();  // one window is full, the next one not offered yet
  bench.offer();
  bench.data("abc");
  lose();
  CHECK(bench.stream.inbound().unread_bytes() == 11);
  CHECK(bench.stream.inbound().wanted_window() == 0);  // 11 bytes fill two windows
  CHECK(bench.stream.inbound().is_full());
  const std::uint32_t turns = bench.stream.inbound().window_changes();
  CHECK(bench.read(2) == "12");
  CHECK(bench.stream.inbound().window_changes() == turns);
  CHECK(bench.read(1) == "3");
  CHECK(bench.stream.inbound().window_changes() != turns);  // 8 bytes fill one
  bench.offer();
  bench.data("defghijk");
  CHECK(bench.stream.inbound().wanted_window() == 0);
  lose();
  CHECK(bench.stream.inbound().wanted_window() == 0);
  CHECK(bench.read() == "45678abcdefghijk");
  bench.offer();
  bench.data("l");
  CHECK(bench.read() == "l");
}

// --- the table -----------------------------------------------------------------------------------

struct Known final : SessionTable::User {
  void on_resume_request(std::unique_ptr<RdmaPending>, const ResumeMessage& message) override {
    generations.push_back(message.generation);
  }
  std::vector<std::uint32_t> generations;
};

// Goal: a program learns why there is no session. Method: a child forbids itself the system call.
TEST_CASE("rdma sessions: without random bytes the error has the kernel's code",
          "[rdma][session]") {
  enum Result { kRight, kWrong, kNoFilter };
  const int result = testing::forked([] {
    if (!testing::forbid({SYS_getrandom}, EPERM)) return kNoFilter;
    try {
      (void)SessionTable::of_process().add({});
    } catch (const Error& error) {
      return error.code() == std::errc::operation_not_permitted ? kRight : kWrong;
    }
    return kWrong;
  });
  if (result == kNoFilter) WARN("this kernel has no filters of system calls");
  CHECK((result == kRight || result == kNoFilter));
}

TEST_CASE("rdma sessions: a request reaches its session once, with the right key",
          "[rdma][session]") {
  testing::AnyLoop loop;
  Known user;
  SessionTable& table = SessionTable::of_process();
  auto [grant, entry] = table.add({&loop, nullptr, &user});
  auto [other, others_entry] = table.add({&loop, nullptr, &user});
  CHECK(grant.session != other.session);
  CHECK(grant.key != other.key);
  const auto bound = bytes_of("10.0.0.1:1");
  const auto pass = [&](std::uint32_t generation, std::uint64_t session, const SipKey& key,
                        std::span<const std::byte> from) {
    const ResumeMessage message{.generation = generation, .session = session};
    const ResumeBytes bytes = seal_request(message, key, from);
    auto request = std::make_unique<RdmaPending>(nullptr, CmId(), std::span(bytes));
    const SessionTable::Passed why = table.pass(request, message, bound, loop);
    CHECK((request != nullptr) ==
          (why != SessionTable::Passed::kYes));  // who is refused keeps the request
    return why;
  };
  CHECK(pass(1, grant.session, other.key, bound) == SessionTable::Passed::kUnknown);
  CHECK(pass(1, grant.session ^ 1, grant.key, bound) == SessionTable::Passed::kUnknown);
  CHECK(pass(1, grant.session, grant.key, bytes_of("10.0.0.1:2")) ==
        SessionTable::Passed::kUnknown);
  CHECK(user.generations.empty());
  CHECK(pass(2, grant.session, grant.key, bound) == SessionTable::Passed::kYes);
  CHECK(pass(2, grant.session, grant.key, bound) == SessionTable::Passed::kUnknown);
  CHECK(pass(1, grant.session, grant.key, bound) == SessionTable::Passed::kUnknown);
  CHECK(pass(3, grant.session, grant.key, bound) == SessionTable::Passed::kYes);
  CHECK(user.generations == std::vector<std::uint32_t>{2, 3});
  entry = {};
  CHECK(pass(4, grant.session, grant.key, bound) == SessionTable::Passed::kUnknown);
  CHECK(pass(1, other.session, other.key, bound) ==
        SessionTable::Passed::kYes);  // the other one is there
}

/// A session of the accepting side, which does what PathRecovery does with a request.
struct Accepting final : SessionTable::User {
  Accepting(const Grant& grant, SessionTable::Entry entry) : session(grant, 10s) {
    session.entry = std::move(entry);
  }
  void on_resume_request(std::unique_ptr<RdmaPending> request,
                         const ResumeMessage& message) override {
    if (message.generation <= session.generation())
      log += "old;";
    else if (!session.find_key(request->private_data(), bound, arrived))
      log += "refused;";
    else if (session.take_generation(message.generation))
      log += "resumes;";
  }
  Session session;
  std::uint64_t arrived = 100;
  const std::vector<std::byte> bound = bytes_of("10.0.0.1:1");
  std::string log;
};

TEST_CASE("rdma sessions: the key before a secret counts until the peer has the secret",
          "[rdma][session]") {
  testing::AnyLoop loop;
  SessionTable& table = SessionTable::of_process();
  struct Late final : SessionTable::User {
    void on_resume_request(std::unique_ptr<RdmaPending> request,
                           const ResumeMessage& message) override {
      user->on_resume_request(std::move(request), message);
    }
    Accepting* user = nullptr;
  } late;
  auto [grant, entry] = table.add({&loop, nullptr, &late});
  Accepting server(grant, std::move(entry));
  late.user = &server;
  const auto pass = [&](std::uint32_t generation, const SipKey& key) {
    const ResumeMessage message{.generation = generation, .session = grant.session};
    const ResumeBytes bytes = seal_request(message, key, server.bound);
    auto request = std::make_unique<RdmaPending>(nullptr, CmId(), std::span(bytes));
    return table.pass(request, message, server.bound, loop);
  };
  const std::vector<std::byte> secret(16, std::byte{7});
  Session client(grant, 10s);
  client.take_secret(secret, true, 0);
  const SipKey key = client.next_key(0);
  REQUIRE(key != grant.key);
  SECTION("a server that cannot know takes both") {
    server.session.take_secret(secret, false, 100);
    CHECK(pass(1, grant.key) == SessionTable::Passed::kYes);
    CHECK(server.session.request_key() == grant.key);
    CHECK(pass(2, key) == SessionTable::Passed::kYes);
    CHECK(server.session.request_key() == key);
    CHECK(pass(1, grant.key) == SessionTable::Passed::kUnknown);
    CHECK(server.log == "resumes;resumes;");
  }
  SECTION("once it knows, who saw the key before does not keep the peer from resuming") {
    server.session.take_secret(secret, false, 100);
    server.arrived = 101;
    CHECK(pass(0xFFFFFFFF, grant.key) == SessionTable::Passed::kYes);
    CHECK(server.log == "refused;");
    CHECK(pass(0xFFFFFFFF, grant.key) == SessionTable::Passed::kUnknown);
    CHECK(pass(1, key) == SessionTable::Passed::kYes);
    CHECK(server.log == "refused;resumes;");
  }
  SECTION("a server that knows takes the new one") {
    server.session.take_secret(secret, true, 100);
    CHECK(pass(1, grant.key) == SessionTable::Passed::kUnknown);
    CHECK(pass(1, key) == SessionTable::Passed::kYes);
  }
}

TEST_CASE("rdma session: a client that is not sure of its peer's key uses both in turn",
          "[rdma][session]") {
  const Grant grant{.session = 1, .key = {}};
  const std::vector<std::byte> secret(16, std::byte{7});
  Session client(grant, 10s);
  client.take_secret(secret, false, 100);
  // An attempt asks each of three addresses with the same key.
  const auto key_of_attempt = [&](std::uint64_t arrived) {
    (void)client.begin_attempt();
    const SipKey one = client.next_key(arrived);
    CHECK(client.next_key(arrived) == one);
    CHECK(client.next_key(arrived) == one);
    return one;
  };
  const SipKey key = key_of_attempt(100);
  CHECK(key != grant.key);
  CHECK(client.may_know_other_key(100));  // the peer may not have it yet
  CHECK(key_of_attempt(100) == grant.key);
  CHECK(key_of_attempt(100) == key);
  CHECK(client.may_know_other_key(100));
  CHECK(key_of_attempt(100) == grant.key);
  CHECK(client.may_know_other_key(100));  // the peer has the new one by now
  CHECK(key_of_attempt(100) == key);
  CHECK_FALSE(client.may_know_other_key(100));
  client.on_path();
  CHECK(client.may_know_other_key(100));
  // Another byte of the peer proves that it has the secret.
  CHECK(key_of_attempt(101) == key);
  CHECK(key_of_attempt(101) == key);
  CHECK_FALSE(client.may_know_other_key(101));
}

}}}}  // namespace conn::rdma

#endif
