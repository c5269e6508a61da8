// SPDX-License-Identifier: BSD-3-Clause
// PathRecovery by itself: the test is the carrier, the peer and the device, and calls the steps.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tests/simulation/link_bed.h"

using namespace simulation;
using conn::rdma::Hello;
using conn::rdma::HelloKind;
using conn::rdma::PathRecovery;
using conn::rdma::Phase;
using conn::rdma::Role;
using testing::Contains;

namespace {

/// A connection on its first path, with a session if `granted`.
struct Bed {
  explicit Bed(const std::string& options = "resume=yes&resume-time=10s", bool granted = true,
               std::uint32_t more = 0, Role role = Role::kClient)
      : bed(options, "hns", role),
        recovery(role == Role::kClient ? std::make_unique<PathRecovery>(bed.around(), kPeer)
                                       : std::make_unique<PathRecovery>(bed.around())) {
    bed.open();
    Hello hello{.flags = Hello::kWindowMayChange | Hello::kFinishes | more};
    if (role == Role::kServer) {
      hello.resume_ms = 10000;
      Hello ours = bed.link.stream.hello();
      (void)recovery->grant(hello, ours);
      CHECK((ours.flags & (Hello::kResumes | Hello::kForgets)) ==
            (Hello::kResumes | Hello::kForgets));
      bed.link.stream.on_hello(hello);
    } else {
      if (granted) {
        hello.flags |= Hello::kResumes;
        hello.resume_ms = 10000;
        hello.grant.session = 5;
        hello.grant.key.fill(std::byte{3});
      }
      const auto bytes = encode(hello, HelloKind::kAnswer);
      REQUIRE(recovery->take_answer({bytes.data(), bytes.size()}));
    }
    bed.run_for(5ms);
    bed.take();
  }
  ~Bed() { recovery->end(); }
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;

  bool lose() {
    why = {std::make_error_code(std::errc::timed_out), "the cable"};
    return recovery->lose_path(why);
  }
  /// Loses the path, and leaves it. The connecting end begins an attempt at once, which is given
  /// up here.
  void leave() {
    REQUIRE(lose());
    recovery->go_on();
    REQUIRE(bed.link.queue_pair() == nullptr);
    if (bed.link.role() == Role::kClient) give_up_attempt();
    REQUIRE(bed.link.stage.phase() == Phase::kLost);
    bed.take();
  }
  void give_up_attempt() {
    REQUIRE(bed.link.stage.phase() == Phase::kResolving);
    REQUIRE(bed.setup != nullptr);
    bed.setup.reset();
    bed.deadline.clear(&bed.loop);
    bed.link.stage.move(Phase::kLost);
  }
  ssize_t write(std::string bytes) {
    const iovec piece{bytes.data(), bytes.size()};
    return recovery->write(&piece, 1);
  }
  std::uint64_t lost() { return bed.state.statistics().lost; }

  inline static const conn::Endpoint kPeer = conn::Endpoint::parse("rdma://10.77.0.2:7");
  LinkBed bed;
  std::unique_ptr<PathRecovery> recovery;
  conn::Failure why;
};

}  // namespace

TEST_CASE("rdma path recovery: only a peer that grants a session makes one",
          "[simulation][path-recovery]") {
  const bool granted = GENERATE(true, false);
  Bed one("resume=yes", granted);
  CHECK((one.recovery->session() != nullptr) == granted);
  CHECK_FALSE(one.recovery->lost());
  CHECK_FALSE(one.recovery->keeps_unsent());
  if (granted) CHECK(one.recovery->session()->id() == 5);
  CHECK(one.lose() == granted);
}

TEST_CASE("rdma path recovery: the request for a connection asks for a session",
          "[simulation][path-recovery]") {
  Bed one("resume=yes&resume-time=7s", false);
  const auto data = one.recovery->request({});
  const auto asked = conn::rdma::decode_hello(data.data(), HelloKind::kRequest);
  REQUIRE(asked);
  CHECK((asked->flags & Hello::kResumes) != 0);
  CHECK(asked->resume_ms == 7000);
}

TEST_CASE("rdma path recovery: the loss of the path is recorded, and told",
          "[simulation][path-recovery]") {
  Bed one;
  one.bed.link.path.set_peer(one.bed.link.path.local());
  REQUIRE(one.bed.deadline.set(1s, conn::rdma::Deadline::Of::kAccept));
  REQUIRE(one.lose());
  CHECK(one.bed.link.stage.phase() == Phase::kLost);
  CHECK(one.recovery->lost());
  CHECK(one.recovery->keeps_unsent());
  CHECK(one.lost() == 1);
  CHECK(one.recovery->session()->resumes_as() == Phase::kOpen);
  CHECK_THAT(one.recovery->session()->why().text, Contains("the cable"));
  CHECK(one.bed.queue_pair().actual == IBV_QPS_ERR);
  CHECK(one.bed.take() == "progress ");
  one.bed.run_for(3s);  // the deadline was that of the lost path
  CHECK(one.bed.expired.empty());
  one.recovery->end();
  CHECK(one.lost() == 0);
}

TEST_CASE("rdma path recovery: what cannot go on without its path", "[simulation][path-recovery]") {
  Bed one("resume=yes", true, Hello::kHearsAborts);
  SECTION("one that is being aborted") { REQUIRE(one.bed.link.stream.outbound().abort()); }
  SECTION("one that is closed already") { one.bed.link.stage.move(Phase::kDisconnecting); }
  SECTION("one whose peer broke the protocol") {
    one.bed.link.stream.on_control({}, one.bed.state.now());
    REQUIRE(one.bed.link.stream.failure() != nullptr);
  }
  SECTION("one more than a loop may have") { one.bed.state.statistics().lost = 1024; }
  const Phase before = one.bed.link.stage.phase();
  CHECK_FALSE(one.lose());
  CHECK(one.bed.link.stage.phase() == before);
  CHECK_FALSE(one.recovery->lost());
  CHECK(one.bed.take().empty());
  one.bed.state.statistics().lost = 0;
}

TEST_CASE("rdma path recovery: the path is left with the bytes of both directions",
          "[simulation][path-recovery]") {
  Bed one;
  auto& inbound = one.bed.link.stream.inbound();
  (void)one.bed.posting.post_due(one.bed.host());  // announces our window
  one.bed.link.stream.on_data(6, one.bed.state.now());
  std::array<std::span<const std::byte>, 2> pieces;
  REQUIRE(inbound.peek(pieces) == 1);
  std::memcpy(const_cast<std::byte*>(pieces[0].data()), "unread", 6);
  one.bed.stage("staged before");
  one.leave();
  CHECK(inbound.unread_bytes() == 6);
  CHECK(inbound.left_over() == 6);
  std::array<std::byte, 6> unread{};
  REQUIRE(inbound.read(unread.data(), unread.size()) == 6);
  CHECK(std::memcmp(unread.data(), "unread", 6) == 0);
  CHECK(one.write(" and after") == 10);
  const auto kept = one.recovery->session()->unsent().bytes();
  CHECK(std::string(reinterpret_cast<const char*>(kept.data()), kept.size()) ==
        "staged before and after");
  CHECK(one.recovery->session()->total() == 23);
  CHECK(one.bed.link.context() == nullptr);
}

TEST_CASE("rdma path recovery: memory that the program has reserved keeps the path",
          "[simulation][path-recovery]") {
  Bed one;
  REQUIRE_FALSE(one.bed.link.sender.buffer()
                    .reserve(10, one.bed.settings->limit(), one.bed.state.now())
                    .empty());
  REQUIRE(one.lose());
  one.recovery->go_on();
  CHECK(one.bed.link.queue_pair() != nullptr);
  one.bed.link.sender.queue().commit(0);
  one.recovery->go_on();
  CHECK(one.bed.link.queue_pair() == nullptr);
}

TEST_CASE("rdma path recovery: without a path, writes are kept up to the size of the buffer",
          "[simulation][path-recovery]") {
  Bed one("resume=yes&send-buffer=64k&max-send-buffer=64k");
  one.leave();
  CHECK(one.recovery->has_room());
  CHECK(one.write(std::string(60000, 'a')) == 60000);
  CHECK_FALSE(one.recovery->has_room());
  CHECK(one.write(std::string(60000, 'a')) == 65536 - 60000);
  errno = 0;
  CHECK(one.write("b") == -1);
  CHECK(errno == EAGAIN);
  one.recovery->session()->resume_as(Phase::kHalfClosed);
  CHECK(one.recovery->has_room());  // the handler is to learn of it
  CHECK(one.write("b") == -1);
  CHECK(errno == EPIPE);
}

TEST_CASE("rdma path recovery: without a new path in time, the reason of the loss is told",
          "[simulation][path-recovery]") {
  // The accepting side waits for the peer.
  Bed one("resume=yes&resume-time=2s&keepalive=100ms", true, 0, Role::kServer);
  one.leave();
  const auto until = one.recovery->session()->until();
  CHECK(until > one.bed.state.now() + 2s);  // the peer may learn later of the loss
  CHECK(one.recovery->session()->next_at() == until);
  one.bed.run_for(until - one.bed.state.now() - 10ms);
  one.recovery->go_on();
  CHECK(one.bed.take().find("end") == std::string::npos);
  one.bed.run_for(20ms);
  one.recovery->go_on();
  CHECK_THAT(one.bed.take(), Contains("end "));
  CHECK(one.bed.ended.code == std::errc::timed_out);
  CHECK_THAT(one.bed.ended.text, Contains("the cable; no new path in"));
}

TEST_CASE("rdma path recovery: after a failed attempt the connecting side plans the next",
          "[simulation][path-recovery]") {
  Bed one;
  one.leave();
  const auto fail = [&](std::chrono::milliseconds retry_after) {
    conn::Failure why{std::make_error_code(std::errc::timed_out), "silence"};
    why.retry_after = retry_after;
    one.recovery->on_attempt_failed(std::move(why));
  };
  fail(0ms);
  CHECK(one.recovery->session()->next_at() > one.bed.state.now());
  CHECK(one.recovery->session()->next_at() <= one.bed.state.now() + 500ms);
  CHECK(one.bed.ended.text.empty());
  one.recovery->go_on();
  CHECK(one.bed.link.stage.phase() == Phase::kLost);  // it is not due yet
  one.bed.run_for(600ms);
  one.recovery->go_on();
  one.give_up_attempt();
  fail(3s);
  CHECK(one.recovery->session()->next_at() >= one.bed.state.now() + 2900ms);
  // Later there is no time for another one.
  one.bed.run_for(11s);
  fail(0ms);
  CHECK_THAT(one.bed.ended.text, Contains("no new path in"));
}

TEST_CASE("rdma path recovery: a peer that misses bytes ends the connection at once",
          "[simulation][path-recovery]") {
  Bed one;
  one.leave();
  CHECK_FALSE(one.recovery->session()->take_count(1));  // more than was ever posted
  one.recovery->on_attempt_failed({std::make_error_code(std::errc::protocol_error), "refused"});
  CHECK(one.bed.ended.code == std::errc::connection_reset);
  CHECK_THAT(one.bed.ended.text, Contains("bytes that the peer misses are gone"));
}

TEST_CASE("rdma path recovery: close() without a path", "[simulation][path-recovery]") {
  const bool forgets = GENERATE(true, false);
  const bool linger = GENERATE(true, false);
  const bool left = GENERATE(true, false);
  CAPTURE(forgets, linger, left);
  Bed one(std::string("resume=yes&resume-time=60s&linger=") + (linger ? "4s" : "0s"), true,
          forgets ? Hello::kForgets : 0);
  one.leave();
  if (left) REQUIRE(one.write("left") == 4);
  CHECK(one.recovery->can_ask_to_forget() == forgets);
  one.bed.make_id();
  const auto ask = [&] {
    const auto data = one.recovery->request({});
    const auto message = conn::rdma::decode_resume(data.data());
    REQUIRE(message);
    return *message;
  };
  CHECK(ask().reason != conn::rdma::ResumeReason::kForget);
  const auto now = one.bed.state.now();
  one.recovery->session()->set_next(now + 30s);
  one.recovery->close_later();
  CHECK(one.recovery->session()->resumes_as() == Phase::kClosing);
  // Whoever has nothing to wait for ends at once.
  const bool waits = linger || forgets;
  CHECK(one.bed.take() == (waits ? "" : "finish "));
  if (!waits) return;
  const auto limit = linger ? ae::Duration(4s) : conn::rdma::Ending::kFailureTimeout;
  const auto by = one.bed.ending.close_by();
  CHECK(by >= now + limit);
  CHECK(by <= now + limit + 1ms);
  CHECK(one.recovery->session()->until() == by);
  CHECK((one.recovery->session()->next_at() <= one.bed.state.now()) == forgets);
  const auto message = ask();
  const bool asks = forgets && (!left || !linger);
  CHECK((message.reason == conn::rdma::ResumeReason::kForget) == asks);
  CHECK(one.recovery->session()->asked_to_forget == asks);
  if (asks) CHECK(message.total == (left ? 4 : 0));
  CHECK(message.generation == 2);
}

TEST_CASE("rdma path recovery: on a new path the unsent bytes go first",
          "[simulation][path-recovery]") {
  const bool closing = GENERATE(false, true);
  Bed one;
  one.bed.stage("first ");
  one.leave();
  REQUIRE(one.write("second") == 6);
  if (closing) {
    one.recovery->close_later();
    one.bed.take();
  }
  one.bed.link.stage.move(Phase::kResolving);
  one.recovery->renew_stream();
  one.bed.make_path();
  one.bed.link.stage.move(Phase::kConnecting);
  one.bed.link.stage.move(Phase::kResending);
  REQUIRE(one.bed.deadline.set(1s, conn::rdma::Deadline::Of::kAccept));  // of the handshake
  REQUIRE(one.recovery->on_new_path());
  CHECK_FALSE(one.recovery->lost());
  CHECK_FALSE(one.recovery->keeps_unsent());
  CHECK(one.lost() == 0);
  CHECK(one.bed.state.statistics().resumes == 1);
  CHECK(one.bed.state.statistics().bytes_resent == 12);
  CHECK(one.recovery->session()->unsent().empty());
  CHECK(one.bed.link.stage.phase() == (closing ? Phase::kClosing : Phase::kOpen));
  CHECK(one.bed.take() == "progress ");
  std::array<std::byte, 12> bytes{};
  REQUIRE(one.bed.link.sender.queue().held() == bytes.size());
  one.bed.link.sender.queue().copy_held(bytes.data());
  CHECK(std::memcmp(bytes.data(), "first second", bytes.size()) == 0);
  // The time for the close goes on.
  one.bed.run_for(5s);
  using Expired = std::vector<conn::rdma::Deadline::Of>;
  CHECK(one.bed.expired == (closing ? Expired{conn::rdma::Deadline::Of::kLinger} : Expired{}));
}
