// SPDX-License-Identifier: BSD-3-Clause
// How a chain of work requests is presented to a driver, and how the driver's result is
// interpreted. The driver is simulated by a function: no device is needed.
#if AECONN_RDMA

#include "conn/rdma/send_chain.h"

#include <arpa/inet.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/post_send_driver.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

// Records posted requests.
struct Driver : testing::PostSendDriver {
  void take(const ibv_send_wr& work) override {
    seen.push_back(work);
    pieces.push_back(work.sg_list != nullptr ? *work.sg_list : ibv_sge{});
    lists.emplace_back(work.sg_list, work.sg_list + work.num_sge);
  }
  std::vector<ibv_send_wr> seen;
  std::vector<ibv_sge> pieces;  // the first piece of each request
  std::vector<std::vector<ibv_sge>> lists;
};

const std::array<std::byte, 64> kBytes{};
const StagingQueue::Segment kPiece{kBytes.data(), 64, 0x77};

TEST_CASE("rdma send chain: requests follow each other, numbered, with what they are to move",
          "[rdma]") {
  SendChain chain(100, 40);
  CHECK(chain.room() == SendChain::kLimit);
  chain.write_nothing(0x2000, 0x66);
  chain.send(kBytes.data(), 0x55);
  chain.send_inline(ControlBytes{});
  chain.write({&kPiece, 1}, 0x1000, 0x44, false);
  chain.write({&kPiece, 1}, 0x1040, 0x44, true);
  chain.with_immediate(128);
  chain.signal(1);
  CHECK(chain.size() == 5);
  CHECK(chain.next_sequence() == 46);
  Driver driver;
  const SendChain::Result result = chain.post(&driver);
  CHECK(result.posted == 5);
  CHECK(result.error == 0);
  CHECK(result.known);
  REQUIRE(driver.seen.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) CHECK(driver.seen[i].wr_id == 41 + i);

  // The list is not null, which some drivers dereference, but has no entries, which others would
  // look up.
  CHECK(driver.seen[0].opcode == IBV_WR_RDMA_WRITE);
  CHECK(driver.seen[0].sg_list != nullptr);
  CHECK(driver.seen[0].num_sge == 0);
  CHECK(driver.seen[0].send_flags == 0);
  CHECK(driver.seen[0].wr.rdma.remote_addr == 0x2000);
  CHECK(driver.seen[0].wr.rdma.rkey == 0x66);

  CHECK(driver.seen[1].opcode == IBV_WR_SEND);
  CHECK(driver.seen[1].num_sge == 1);
  CHECK(driver.seen[1].send_flags == IBV_SEND_SIGNALED);
  CHECK(driver.pieces[1].length == kControlSize);
  CHECK(driver.pieces[1].lkey == 0x55);
  CHECK(driver.seen[2].opcode == IBV_WR_SEND);
  CHECK(driver.seen[2].send_flags == IBV_SEND_INLINE);

  CHECK(driver.seen[3].opcode == IBV_WR_RDMA_WRITE);
  CHECK(driver.seen[3].send_flags == 0);
  CHECK(driver.pieces[3].length == 64);
  CHECK(driver.pieces[3].lkey == 0x77);
  CHECK(driver.seen[4].opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
  CHECK(driver.seen[4].send_flags == IBV_SEND_INLINE);
  CHECK(driver.seen[4].wr.rdma.remote_addr == 0x1040);
  CHECK(ntohl(driver.seen[4].imm_data) == 128);
}

TEST_CASE("rdma send chain: a request takes its pieces in order, and none of its neighbours'",
          "[rdma]") {
  std::array<StagingQueue::Segment, kMostPieces> pieces;
  for (std::uint32_t i = 0; i < pieces.size(); ++i)
    pieces[i] = {kBytes.data() + i, 1 + i, 0x10 + i};
  SendChain chain(SendChain::kLimit, 0);
  for (std::size_t i = 0; i < SendChain::kLimit; ++i)
    chain.write(std::span(pieces).first(i == 0 ? 1 : kMostPieces), 0x1000, 0x44, i == 0);
  Driver driver;
  REQUIRE(chain.post(&driver).error == 0);
  CHECK(driver.lists[0].size() == 1);
  CHECK(driver.seen[0].send_flags == IBV_SEND_INLINE);
  for (std::size_t i = 1; i < SendChain::kLimit; ++i) {
    REQUIRE(driver.lists[i].size() == kMostPieces);
    CHECK(driver.seen[i].send_flags == 0);
    for (std::uint32_t j = 0; j < kMostPieces; ++j) {
      CHECK(driver.lists[i][j].addr == reinterpret_cast<std::uintptr_t>(kBytes.data() + j));
      CHECK(driver.lists[i][j].length == 1 + j);
      CHECK(driver.lists[i][j].lkey == 0x10 + j);
    }
  }
}

TEST_CASE("rdma send chain: how many were taken is what the driver says, or not known", "[rdma]") {
  SendChain chain(SendChain::kLimit, 0);
  for (int i = 0; i < 3; ++i) chain.write({&kPiece, 1}, 0x1000, 0x44, false);
  Driver driver;
  driver.takes = 2;
  driver.names = GENERATE(true, false);
  driver.answer = GENERATE(ENOMEM, -ENOMEM, EINVAL);
  const SendChain::Result result = chain.post(&driver);
  CHECK(result.error == std::abs(driver.answer));
  CHECK(result.known == driver.names);
  CHECK(result.posted == (driver.names ? 2u : 0u));
}

TEST_CASE("rdma send chain: no more than the send queue has room for", "[rdma]") {
  SendChain chain(2, 0);
  chain.write_nothing(0, 0);
  CHECK_FALSE(chain.full());
  CHECK(chain.room() == 1);
  chain.write_nothing(0, 0);
  CHECK(chain.full());
}

}  // namespace
}}}  // namespace conn::rdma

#endif
