// SPDX-License-Identifier: BSD-3-Clause
// Parts of the sending side and of a connection's life that need no device: what is recorded of the
// requests in flight, how many bytes a send buffer takes, the states of a queue pair, and what the
// failure of a request means.
#if AECONN_RDMA

#include <array>
#include <cstdint>
#include <memory>

#include "conn/rdma/pair_state.h"
#include "conn/rdma/path.h"
#include "conn/rdma/private_data.h"
#include "conn/rdma/reader.h"
#include "conn/rdma/requests_in_flight.h"
#include "conn/rdma/send_buffer.h"
#include "conn/rdma/work_failure.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

TEST_CASE("rdma requests: completed ones give back what they held", "[rdma][sender]") {
  RequestsInFlight requests;
  requests.begin(5);
  CHECK(requests.places() == 8);
  CHECK(requests.count() == 0);
  CHECK(requests.last_is_signaled());
  CHECK_FALSE(requests.has(0));
  CHECK_FALSE(requests.has(1));
  requests.add(0, true);
  requests.add(100, false);
  requests.add_data(50);
  CHECK(requests.count() == 3);
  CHECK(requests.posted() == 3);
  CHECK_FALSE(requests.last_is_signaled());
  requests.set_last_signaled(3);
  CHECK(requests.last_is_signaled());
  CHECK(requests.has(1));
  CHECK(requests.has(3));
  CHECK_FALSE(requests.has(4));
  const auto first = requests.retire(2);
  CHECK(first.bytes == 100);
  CHECK(first.messages == 1);
  CHECK(requests.data_under_way());
  // What is not on the send queue is ignored: completed ones, and those that were never posted.
  for (const std::uint32_t number : {2u, 1u, 4u}) {
    CHECK(requests.retire(number).bytes == 0);
    CHECK(requests.done() == 2);
  }
  const auto last = requests.retire(3);
  CHECK(last.bytes == 50);
  CHECK(last.messages == 1);
  CHECK_FALSE(requests.data_under_way());
  CHECK(requests.wrote());
  CHECK(requests.count() == 0);
  requests.begin(5);
  CHECK_FALSE(requests.wrote());
  CHECK(requests.posted() == 0);
}

TEST_CASE("rdma requests: places and numbers are used again", "[rdma][sender]") {
  RequestsInFlight requests;
  requests.begin(4);
  for (std::uint32_t i = 1; i <= 100; ++i) {
    requests.add(i, i % 2 == 0);
    if (i < 4) continue;
    const auto retired = requests.retire(i - 3);
    REQUIRE(retired.bytes == i - 3);
    REQUIRE(retired.messages == ((i - 3) % 2 == 0 ? 1u : 0u));
    REQUIRE(requests.count() == 3);
  }
  for (std::uint32_t a = 98; a <= 100; ++a)
    for (std::uint32_t b = 98; b < a; ++b) CHECK(requests.place_of(a) != requests.place_of(b));
}

TEST_CASE("rdma requests: bytes are confirmed with their last request", "[rdma][sender]") {
  RequestsInFlight requests;
  requests.begin(8);
  requests.add_data(10);
  requests.add_data(10);
  requests.add(0, true);
  (void)requests.retire(1);
  CHECK(requests.data_under_way());
  (void)requests.retire(2);
  CHECK_FALSE(requests.data_under_way());
  CHECK(requests.count() == 1);
}

TEST_CASE("rdma requests: after a failure nothing is given back", "[rdma][sender]") {
  RequestsInFlight requests;
  requests.begin(8);
  for (int i = 0; i < 4; ++i) requests.add_data(10);
  requests.fail(2);
  CHECK(requests.failed());
  CHECK(requests.count() == 2);
  CHECK(requests.data_under_way());
  const auto retired = requests.retire(4);
  CHECK(retired.bytes == 0);
  CHECK(retired.messages == 0);
  CHECK(requests.count() == 0);
  CHECK_FALSE(requests.data_under_way());
  requests.begin(8);
  CHECK_FALSE(requests.failed());
}

TEST_CASE("rdma send buffer: a waiting writer is called for a quarter of it", "[rdma][sender]") {
  Settings settings;
  settings.send_buffer = settings.max_send_buffer = 4096;
  SendBuffer buffer(settings);
  ReferencePool references;
  buffer.use(nullptr, &references);
  buffer.queue().use_cell(128);
  CHECK(buffer.size() == 4096);
  CHECK(buffer.has_room());
  const auto now = [] { return ae::TimePoint{}; };
  const std::array<char, 200> bytes{};
  CHECK(buffer.append_straight(bytes.data(), 100, now));
  CHECK_FALSE(buffer.append_straight(bytes.data(), 100, now));  // the cell is full
  CHECK(buffer.queue().staged() == 100);
  CHECK_FALSE(buffer.was_short_of_room());
}

TEST_CASE("rdma send buffer: without memory no writer is called", "[rdma][sender]") {
  const Settings settings;
  SendBuffer buffer(settings);
  CHECK(buffer.has_room());
  buffer.wait_for_memory(1000, {});
  CHECK(buffer.waits_for_memory());
  CHECK_FALSE(buffer.has_room());
  CHECK(buffer.secure(false, {}));  // nobody waits, so no memory is needed
  CHECK_FALSE(buffer.waits_for_memory());
  CHECK(buffer.has_room());
}

TEST_CASE("rdma queue pair: its states follow each other as the table says", "[rdma][states]") {
  using At = PairState::At;
  PairState pair;
  CHECK_FALSE(pair.can_stop());
  pair.move(At::kMade);
  CHECK(pair.can_stop());
  CHECK_FALSE(pair.was_connected());
  CHECK(pair.after_stop() == At::kDiscarded);
  pair.move(At::kConnected);
  CHECK(pair.can_stop());
  CHECK(pair.was_connected());
  CHECK_FALSE(pair.stopped());
  CHECK(pair.after_stop() == At::kStopped);
  pair.move(At::kStopped);
  CHECK(pair.stopped());
  CHECK(pair.was_connected());
  CHECK_FALSE(pair.can_stop());
  pair.on_last_receive();
  CHECK(pair.took_last_receive());
  pair.move(At::kNone);  // the next queue pair has its own last receive
  CHECK_FALSE(pair.took_last_receive());
  const std::array all{At::kNone, At::kMade, At::kConnected, At::kDiscarded, At::kStopped};
  int steps = 0;
  for (const At from : all)
    for (const At to : all) steps += PairState::allowed(from, to) ? 1 : 0;
  CHECK(steps == 5 + 4);
}

TEST_CASE("rdma: which failures of a request may be the path's", "[rdma][states]") {
  for (const auto status : {IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_RESP_TIMEOUT_ERR,
                            IBV_WC_LOC_QP_OP_ERR, IBV_WC_FATAL_ERR, IBV_WC_GENERAL_ERR})
    CHECK(may_be_the_path(status));
  for (const auto status : {IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR,
                            IBV_WC_LOC_PROT_ERR, IBV_WC_MW_BIND_ERR, IBV_WC_REM_INV_REQ_ERR})
    CHECK_FALSE(may_be_the_path(status));
  CHECK(describe_work_failure(IBV_WC_RETRY_EXC_ERR, true).code == std::errc::timed_out);
  CHECK(describe_work_failure(IBV_WC_RNR_RETRY_EXC_ERR, true).code == std::errc::timed_out);
  CHECK(describe_work_failure(IBV_WC_REM_ACCESS_ERR, true).code == std::errc::protocol_error);
  CHECK(describe_work_failure(IBV_WC_WR_FLUSH_ERR, false).code == std::errc::connection_reset);
  const Failure other = describe_work_failure(IBV_WC_LOC_PROT_ERR, false);
  CHECK(other.code == std::errc::io_error);
  CHECK(other.text.starts_with("receive failed: "));
  CHECK(describe_work_failure(IBV_WC_LOC_PROT_ERR, true).text.starts_with("send failed: "));
}

TEST_CASE("rdma: a failure names the peer, if it is known", "[rdma][states]") {
  Path path;
  Failure failure{std::make_error_code(std::errc::timed_out), "why"};
  path.name_peer(failure);
  CHECK(failure.text == "why");
  SocketAddress peer;
  REQUIRE(numeric_address("10.0.0.2", 6379, peer));
  path.set_peer(peer);
  path.name_peer(failure);
  CHECK(failure.text == "rdma 10.0.0.2:6379: why");
}

TEST_CASE("rdma reader: a copy of unread bytes is exchanged for the one before", "[rdma][reader]") {
  Reader reader;
  auto copy = std::make_unique<std::byte[]>(4);
  const std::byte* const first = copy.get();
  CHECK(reader.exchange_copy(std::move(copy)) == nullptr);
  CHECK(reader.exchange_copy(std::make_unique<std::byte[]>(4)).get() == first);
  CHECK(reader.exchange_copy(nullptr) != nullptr);
  CHECK(reader.exchange_copy(nullptr) == nullptr);
}

TEST_CASE("rdma: private data is a copy", "[rdma][wire]") {
  std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  const PrivateData data(bytes);
  bytes = {};
  REQUIRE(data.data().size() == 3);
  CHECK(data.data()[2] == std::byte{3});
}

}  // namespace
}}}  // namespace conn::rdma

#endif
