// SPDX-License-Identifier: BSD-3-Clause
// What the sending side posts, and what it does with a device that takes less. The driver is
// simulated by a function, and bytes are sent from the test's memory: no device is needed.
#if AECONN_RDMA

#include "conn/rdma/sender.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/post_send_driver.h"
#include "tests/support/stream_bench.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using test::Bench;
using test::feature_message;
using How = Sender::Posted::How;

struct Driver : testing::PostSendDriver {
  void take(const ibv_send_wr& work) override {
    opcodes.push_back(work.opcode);
    signaled.push_back((work.send_flags & IBV_SEND_SIGNALED) != 0);
    if (work.opcode != IBV_WR_SEND) return;
    const auto* bytes = reinterpret_cast<const std::byte*>(work.sg_list->addr);
    const std::optional<ControlMessage> message = decode({bytes, work.sg_list->length});
    REQUIRE(message);
    controls.push_back(*message);
  }
  std::vector<ibv_wr_opcode> opcodes;
  std::vector<bool> signaled;
  std::vector<ControlMessage> controls;
};

struct Bed {
  explicit Bed(const Sender::Limits& limits = {16, 1, 128}) {
    sender.buffer().use(nullptr, &references);
    sender.begin(limits, nullptr, {});
    bench.peer_registers(100000);
  }
  void stage(std::size_t size) {
    REQUIRE(sender.queue().refer(bytes.data(), static_cast<std::uint32_t>(size), 0x77));
  }
  Sender::Posted post() { return sender.post(&driver, windows, false, false, bench.now); }
  // The control messages that are due now.
  std::vector<ControlMessage> due() const {
    std::vector<ControlMessage> messages;
    for (std::uint32_t i = 0;; ++i) {
      const auto message = bench.stream.next_control(bench.now, i);
      if (!message) return messages;
      messages.push_back(*message);
    }
  }
  Driver driver;
  Bench bench{Role::kServer};
  Settings settings;
  ReferencePool references;
  std::array<std::byte, 4096> bytes{};
  WindowMemory windows{bench.stream};
  Sender sender{bench.stream, settings};
};

TEST_CASE("rdma sender: a chain has all that is due, and its completion gives the bytes back",
          "[rdma][sender]") {
  Bed bed;
  bed.bench.settle();
  bed.stage(2000);
  CHECK_FALSE(bed.sender.requests().wrote());
  const Sender::Posted posted = bed.post();
  CHECK(posted.how == How::kDone);
  CHECK(posted.requests == 2);
  CHECK(posted.control == 1);
  CHECK(posted.bytes == 2000);
  CHECK(bed.driver.opcodes == std::vector<ibv_wr_opcode>{IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM});
  CHECK(bed.driver.signaled == std::vector<bool>{false, true});
  CHECK(bed.due().empty());
  CHECK(bed.sender.queue().staged() == 0);
  CHECK(bed.sender.queue().in_flight() == 2000);
  CHECK(bed.sender.requests().data_under_way());

  CHECK(bed.post().how == How::kNothing);
  CHECK(bed.driver.doorbells == 1);

  CHECK_FALSE(bed.sender.retire(3, bed.bench.now, {}));  // was not posted
  CHECK_FALSE(bed.sender.retire(1, bed.bench.now, {}));  // had no bytes
  CHECK(bed.sender.requests().data_under_way());
  CHECK(bed.sender.retire(2, bed.bench.now, {}));
  CHECK(bed.sender.requests().count() == 0);
  CHECK(bed.sender.queue().held() == 0);
  CHECK(bed.sender.queue().take_done() == 1);
  CHECK_FALSE(bed.sender.requests().data_under_way());
  CHECK(bed.sender.requests().wrote());
}

// rxe puts a request on its queue before it tells the kernel: if that fails, ibv_post_send() fails
// without naming a request, and the request may be carried out all the same.
TEST_CASE("rdma sender: what the driver may have taken is not posted again", "[rdma][sender]") {
  const bool named = GENERATE(false, true);
  Bed bed;
  bed.bench.settle();
  REQUIRE(bed.post().how == How::kDone);
  bed.driver.takes = bed.driver.opcodes.size();
  bed.driver.names = named;
  const int before = bed.driver.doorbells;
  REQUIRE(bed.sender.buffer().append_straight("twice", 5, [] { return ae::TimePoint(); }));
  CHECK(bed.sender.post_straight(&bed.driver, bed.bench.now) == 0);
  REQUIRE(bed.driver.doorbells == before + 1);
  const Sender::Posted posted = bed.post();
  if (named) {  // surely not taken
    CHECK(posted.how == How::kDone);
    CHECK(bed.driver.doorbells == before + 2);
  } else {
    CHECK(posted.how == How::kFailed);
    CHECK(posted.error == ENOMEM);
    CHECK(bed.driver.doorbells == before + 1);
  }
}

// Whatever the device takes of a chain: the rest stays due, in the same order, and nothing is sent
// twice.
TEST_CASE("rdma sender: what a device did not take is posted by the next chain", "[rdma][sender]") {
  Bed bed;
  for (std::uint16_t select = 1; select < 5; ++select)
    bed.bench.feature(Opcode::kGetServerFeature, select);
  bed.bench.settle();
  bed.stage(2000);
  const std::vector<ControlMessage> all = bed.due();
  REQUIRE(all.size() == 5);
  const std::uint64_t sent = bed.bench.stream.outbound().proof().sent();
  const auto takes = static_cast<std::size_t>(GENERATE(0, 1, 2, 4, 5));
  bed.driver.takes = takes;
  const Sender::Posted posted = bed.post();
  CHECK(posted.how == How::kDone);
  CHECK(posted.requests == takes);
  CHECK(posted.control == takes);
  CHECK(posted.bytes == 0);  // the request with the bytes was not taken
  CHECK(bed.sender.was_refused());
  CHECK(bed.sender.requests().count() == takes);
  CHECK(bed.bench.stream.outbound().proof().sent() == sent + takes);
  CHECK(bed.due() ==
        std::vector<ControlMessage>(all.begin() + static_cast<long>(takes), all.end()));
  CHECK(bed.sender.queue().staged() == 2000);
  bed.bench.stream.check();

  bed.driver.takes = 1000;
  const Sender::Posted rest = bed.post();
  CHECK(rest.how == How::kDone);
  CHECK(rest.bytes == 2000);
  CHECK_FALSE(bed.sender.was_refused());
  CHECK(bed.driver.controls == all);
  CHECK(bed.driver.opcodes.size() == all.size() + 1);
  CHECK(bed.driver.opcodes.back() == IBV_WR_RDMA_WRITE_WITH_IMM);
  CHECK(bed.bench.stream.outbound().proof().sent() == sent + all.size() + 1);
  CHECK(bed.sender.queue().in_flight() == 2000);
}

TEST_CASE("rdma sender: nothing is tried again once nothing is due", "[rdma][sender]") {
  Bed bed;
  bed.bench.feature(Opcode::kGetServerFeature, 1);
  bed.driver.takes = 1;
  CHECK(bed.post().control == 1);
  (void)bed.sender.post(&bed.driver, bed.windows, false, true, bed.bench.now);
  CHECK(bed.sender.was_refused());
  CHECK(bed.post().how == How::kNothing);
  CHECK_FALSE(bed.sender.was_refused());
}

TEST_CASE("rdma sender: bytes for which messages left no place are posted next", "[rdma][sender]") {
  const int messages = GENERATE(12, 13, 14, 15, 16);
  CAPTURE(messages);
  Bed bed({64, 1, 128});
  bed.bench.settle();
  (void)bed.post();
  for (int i = 0; i < messages; ++i)
    bed.bench.feature(Opcode::kGetServerFeature, static_cast<std::uint16_t>(i + 1));
  const auto due = static_cast<int>(bed.due().size());
  bed.stage(100);
  while (bed.post().how == How::kMore) {
  }
  CHECK(bed.sender.queue().staged() == 0);
  CHECK(due >= messages);
}

TEST_CASE("rdma sender: a post that fails commits nothing", "[rdma][sender]") {
  Bed bed;
  bed.bench.feature(Opcode::kGetServerFeature, 7);
  bed.stage(100);
  bed.driver.takes = 1;
  SECTION("because of a request") { bed.driver.answer = EINVAL; }
  SECTION("and the driver does not say how many it took") { bed.driver.names = false; }
  const std::uint64_t sent = bed.bench.stream.outbound().proof().sent();
  const Sender::Posted posted = bed.post();
  CHECK(posted.how == How::kFailed);
  CHECK(posted.bytes == 0);
  CHECK(posted.error == bed.driver.answer);
  CHECK_FALSE(posted.maybe_key);
  CHECK(bed.sender.requests().count() == 0);
  CHECK(bed.sender.queue().staged() == 100);
  CHECK(bed.bench.stream.outbound().proof().sent() == sent);
  CHECK(bed.due() == std::vector<ControlMessage>{feature_message(7)});
}

TEST_CASE("rdma sender: a chain leaves requests to control messages", "[rdma][sender]") {
  Bed bed;
  for (int i = 0; i < 40; ++i) {
    bed.stage(10);
    (void)bed.post();
  }
  CHECK(bed.sender.requests().count() == 16 - flow::kControlSlots);
  CHECK(bed.sender.queue().staged() != 0);
  bed.bench.feature(Opcode::kGetServerFeature, 9);
  CHECK(bed.post().control == 1);
  CHECK(bed.driver.controls == std::vector<ControlMessage>{feature_message(9)});
}

// The bytes of the cell need a request of their own, however many pieces a request may have.
TEST_CASE("rdma sender: bytes in the cell take no request from control messages",
          "[rdma][sender]") {
  Bed bed({16, 3, 128});
  const char byte = 'c';
  REQUIRE(bed.sender.buffer().append_straight(&byte, 1, [] { return ae::TimePoint(); }));
  for (int i = 0; i < 60; ++i) bed.stage(10);
  while (bed.post().how == How::kMore) {
  }
  CHECK(bed.sender.requests().count() == 16 - flow::kControlSlots);
  CHECK(bed.sender.queue().in_flight() == 1 + 10 * (3 * (16 - flow::kControlSlots - 1)));
}

TEST_CASE("rdma sender: what followed a failed request is given up with the queue pair",
          "[rdma][sender]") {
  Bed bed;
  bed.stage(1000);
  REQUIRE(bed.post().bytes == 1000);
  bed.stage(500);
  REQUIRE(bed.post().bytes == 500);
  CHECK(bed.sender.retire_failed(2, bed.bench.now, {}));  // the first was carried out
  CHECK(bed.sender.requests().failed());
  CHECK(bed.sender.queue().take_done() == 1);
  CHECK(bed.sender.queue().in_flight() == 500);
  CHECK_FALSE(bed.sender.retire_failed(2, bed.bench.now, {}));
  bed.sender.drop_all();
  CHECK(bed.sender.queue().take_done() == 1);
  CHECK(bed.sender.queue().held() == 0);
}

TEST_CASE("rdma sender: bytes that are sent in place are confirmed at once", "[rdma][sender]") {
  Bed bed;
  bed.stage(100);
  CHECK_FALSE(bed.post().asks);
  CHECK(bed.driver.signaled == std::vector<bool>{true});
  CHECK(bed.sender.ask_at() == ae::TimePoint::max());
}

}  // namespace
}}}  // namespace conn::rdma

#endif
