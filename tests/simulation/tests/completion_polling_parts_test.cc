// SPDX-License-Identifier: BSD-3-Clause
// What the completions of a queue mean, and whom they reach: the test is the device, which puts
// them into the queue.

#include <arpa/inet.h>

#include <new>
#include <utility>

#include "conn/rdma/memory/receive_queue.h"
#include "tests/simulation/link_bed.h"

using namespace simulation;
using conn::rdma::kControlSize;
using conn::rdma::kOwnReceiveId;
using conn::rdma::kReceiveId;

namespace {

/// A queue pair with receives of its own.
struct Bed {
  LinkBed bed;
  Bed() {
    bed.open();
    bed.link.drain();
    bed.take();
  }
  void put(std::uint64_t wr_id, ibv_wc_opcode opcode, ibv_wc_status status = IBV_WC_SUCCESS,
           std::uint32_t length = 0, std::uint32_t immediate = 0) {
    QueuePair& qp = bed.queue_pair();
    Completion entry{};
    entry.wc.wr_id = wr_id;
    entry.wc.opcode = opcode;
    entry.wc.status = status;
    entry.wc.byte_len = length;
    entry.wc.imm_data = htonl(immediate);
    entry.wc.wc_flags = opcode == IBV_WC_RECV_RDMA_WITH_IMM ? IBV_WC_WITH_IMM : 0;
    entry.wc.qp_num = qp.qp_num;
    entry.owner = qp.serial;
    static_cast<Queue*>(qp.send_cq)->push(entry);
  }
  void receive(std::uint32_t slot, ibv_wc_opcode opcode, std::uint32_t length,
               std::uint32_t immediate = 0) {
    put(kReceiveId | kOwnReceiveId | slot, opcode, IBV_WC_SUCCESS, length, immediate);
  }
  std::string drain() {
    bed.link.drain();
    return bed.take();
  }
};

}  // namespace

TEST_CASE("rdma completions: sends and their failures reach the owner of the queue pair",
          "[simulation][completions]") {
  Bed one;
  one.put(3, IBV_WC_RDMA_WRITE);
  one.put(4, IBV_WC_SEND);
  one.put(5, IBV_WC_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR);
  CHECK(one.drain() == "sent-3 sent-4 failed-send-5 ");
  CHECK(one.drain().empty());
}

TEST_CASE("rdma completions: receives are messages, or say how much data has come",
          "[simulation][completions]") {
  Bed one;
  one.receive(0, IBV_WC_RECV_RDMA_WITH_IMM, 0, 1234);
  one.receive(1, IBV_WC_RECV, kControlSize);
  one.receive(2, IBV_WC_RECV, kControlSize - 1);
  one.receive(3, IBV_WC_RECV, kControlSize + 1);  // no message of the protocol: it shows no bytes
  one.put(kReceiveId | kOwnReceiveId | 4, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR);
  CHECK(one.drain() == "data-1234 message-32 message-31 message-0 failed-receive ");
}

TEST_CASE("rdma completions: a receive counts once", "[simulation][completions]") {
  Bed one;
  const auto missing = [&] { return one.bed.link.receives()->missing(); };
  const auto before = missing();
  one.receive(0, IBV_WC_RECV_RDMA_WITH_IMM, 0, 1);
  CHECK(one.drain() == "data-1 ");
  CHECK(missing() == before + 1);
  one.receive(0, IBV_WC_RECV_RDMA_WITH_IMM, 0, 1);  // a device that reports it again
  CHECK(one.drain().empty());
  CHECK(missing() == before + 1);
}

TEST_CASE("rdma completions: those of a queue pair without an owner reach nobody",
          "[simulation][completions]") {
  Bed one;
  one.put(3, IBV_WC_RDMA_WRITE);
  one.receive(0, IBV_WC_RECV_RDMA_WITH_IMM, 0, 1);
  one.bed.link.context()->detach(one.bed.queue_pair().qp_num);
  CHECK(one.drain().empty());
}

TEST_CASE("rdma completions: an owner without memory is told so, and the others go on",
          "[simulation][completions]") {
  Bed one;
  one.put(3, IBV_WC_RDMA_WRITE);
  one.put(4, IBV_WC_RDMA_WRITE);
  int calls = 0;
  one.bed.when_completed = [&] {
    if (++calls == 1) throw std::bad_alloc();
  };
  CHECK(one.drain() == "sent-3 no-memory sent-4 ");
}

TEST_CASE("rdma completions: an owner may drain its queue while it handles one of them",
          "[simulation][completions]") {
  Bed one;
  for (std::uint64_t number = 1; number <= 5; ++number) one.put(number, IBV_WC_RDMA_WRITE);
  bool nested = false;
  std::string order;
  one.bed.when_completed = [&] {
    if (std::exchange(nested, true)) return;
    one.bed.link.drain();
    order = one.bed.calls;
  };
  CHECK(one.drain() == "sent-1 sent-2 sent-3 sent-4 sent-5 ");
  CHECK(order == "sent-1 sent-2 sent-3 sent-4 sent-5 ");
}
