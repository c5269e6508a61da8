// SPDX-License-Identifier: BSD-3-Clause
// Tests of the simulated drivers themselves, with plain verbs calls: each behaviour of a profile,
// as a program would encounter it.

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <string>

#include "tests/simulation/objects.h"
#include "tests/simulation/world.h"
#include "tests/support/catch.h"

#undef ibv_reg_mr

using namespace simulation;
using testing::Contains;

namespace {

/// One queue pair of a device, with memory of its own.
class Bench {
 public:
  explicit Bench(const char* profile, std::uint32_t inline_wish = 0, bool shared = false) {
    device_ = &world.add_device("sim0", "10.77.0.1", profile_named(profile));
    context = ibv_open_device(&device_->base);
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, 100, nullptr, channel, 0);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
    if (shared) {
      ibv_srq_init_attr wish{};
      wish.attr = {8, 1, 0};
      srq = ibv_create_srq(pd, &wish);
    }
    qp = make_queue_pair(inline_wish);
  }
  ~Bench() {
    if (window != nullptr) ibv_dealloc_mw(window);
    if (qp != nullptr) ibv_destroy_qp(qp);
    if (srq != nullptr) ibv_destroy_srq(srq);
    ibv_dereg_mr(mr);
    ibv_destroy_cq(cq);
    ibv_destroy_comp_channel(channel);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  ibv_qp* make_queue_pair(std::uint32_t inline_wish) {
    ibv_qp_init_attr wish{};
    wish.send_cq = wish.recv_cq = cq;
    wish.srq = srq;
    wish.qp_type = IBV_QPT_RC;
    wish.cap = {4, srq != nullptr ? 0u : 4u, 1, 1, inline_wish};
    errno = 0;
    ibv_qp* made = ibv_create_qp(pd, &wish);
    granted = wish.cap;
    return made;
  }
  int enter(ibv_qp_state state) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    return ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
  }
  void be_ready() {
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
      REQUIRE(enter(state) == 0);
  }
  int post(ibv_wr_opcode opcode, std::uint32_t length = 0, unsigned flags = 0) {
    piece = {reinterpret_cast<std::uintptr_t>(memory.data()), length, mr->lkey};
    ibv_send_wr work{};
    work.opcode = opcode;
    work.send_flags = flags | IBV_SEND_SIGNALED;
    if (length != 0) work.sg_list = &piece, work.num_sge = 1;
    if (opcode == IBV_WR_BIND_MW) {
      work.bind_mw.mw = window;
      work.bind_mw.rkey = ibv_inc_rkey(window->rkey);
      work.bind_mw.bind_info = {mr, reinterpret_cast<std::uintptr_t>(memory.data()), 64,
                                IBV_ACCESS_REMOTE_WRITE};
    }
    if (opcode == IBV_WR_LOCAL_INV) work.invalidate_rkey = ibv_inc_rkey(window->rkey);
    bad = nullptr;
    const int result = ibv_post_send(qp, &work, &bad);
    named = bad == &work;
    return result;
  }
  int post_shared(unsigned count) {
    std::array<ibv_recv_wr, 16> all{};
    std::array<ibv_sge, 16> pieces{};
    for (unsigned i = 0; i < count; ++i) {
      pieces[i] = {reinterpret_cast<std::uintptr_t>(memory.data()), 32, mr->lkey};
      all[i].sg_list = &pieces[i];
      all[i].num_sge = 1;
      all[i].next = i + 1 < count ? &all[i + 1] : nullptr;
    }
    bad_receive = nullptr;
    return ibv_post_srq_recv(srq, all.data(), &bad_receive);
  }
  ibv_wc_status completion() {
    for (int i = 0; i < 100; ++i) {
      ibv_wc wc{};
      if (ibv_poll_cq(cq, 1, &wc) == 1) return wc.status;
      world.advance(world.now() + 1ms);
    }
    return IBV_WC_GENERAL_ERR;
  }
  std::string violation() {
    const std::vector<std::string> all = world.take_violations();
    return all.empty() ? "" : all.front();
  }

  World world;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_mw* window = nullptr;
  ibv_qp* qp = nullptr;
  ibv_qp_cap granted{};
  ibv_send_wr* bad = nullptr;
  ibv_recv_wr* bad_receive = nullptr;
  bool named = false;

 private:
  Device* device_ = nullptr;
  ibv_sge piece{};
  std::array<std::byte, 8192> memory{};
};

struct Inline {
  const char* profile;
  std::uint32_t wish;
  std::int64_t granted;  // -1: refused
  int error;
};

}  // namespace

TEST_CASE("simulation: inline data as each driver grants it", "[simulation][profiles]") {
  const Inline row = GENERATE(
      Inline{"rxe", 128, 128, 0}, Inline{"rxe", 0, 16, 0}, Inline{"rxe", 513, -1, EINVAL},
      Inline{"mlx5", 128, 188, 0}, Inline{"mlx5", 0, 60, 0}, Inline{"mlx5", 829, -1, EINVAL},
      Inline{"bnxt_re", 32, 96, 0}, Inline{"bnxt_re", 0, 0, 0}, Inline{"bnxt_re", 97, -1, 0},
      Inline{"irdma-e810", 101, 101, 0}, Inline{"irdma-e810", 102, -1, EINVAL},
      Inline{"erdma", 128, -1, EINVAL}, Inline{"hns", 128, 32, 0}, Inline{"hns", 20, 32, 0},
      Inline{"iwarp", 0, 256, 0});
  CAPTURE(row.profile, row.wish);
  Bench bench(row.profile);
  ibv_qp* made = bench.make_queue_pair(row.wish);
  CHECK((made == nullptr) == (row.granted < 0));
  if (made == nullptr) CHECK(errno == row.error);
  if (made != nullptr) CHECK(bench.granted.max_inline_data == row.granted);
  if (made != nullptr) ibv_destroy_qp(made);
}

TEST_CASE("simulation: what drivers return where they refuse a request", "[simulation][profiles]") {
  struct Row {
    const char* profile;
    int bind, full, in_error;
  };
  const Row row = GENERATE(Row{"mlx5", 0, ENOMEM, 0}, Row{"bnxt_re", -EINVAL, ENOMEM, 0},
                           Row{"hns", EINVAL, ENOMEM, 0}, Row{"irdma-gen3", 0, ENOMEM, 0});
  CAPTURE(row.profile);
  Bench bench(row.profile);
  bench.window = new Window{};  // not allocated by any driver
  bench.window->pd = bench.pd;
  bench.be_ready();
  if (row.bind != 0) CHECK(bench.post(IBV_WR_BIND_MW) == row.bind);
  if (row.bind != 0) CHECK(bench.named);
  delete static_cast<Window*>(bench.window);
  bench.window = nullptr;
  int result = 0;
  for (int i = 0; i < 100 && result == 0; ++i) result = bench.post(IBV_WR_SEND, 8);
  CHECK(result == row.full);
  CHECK(bench.named);
  CHECK(bench.enter(IBV_QPS_ERR) == 0);
  while (bench.completion() == IBV_WC_WR_FLUSH_ERR) {
  }
  CHECK(bench.post(IBV_WR_SEND, 8) == row.in_error);
}

TEST_CASE("simulation: a queue pair in ERR takes nothing on some devices",
          "[simulation][profiles]") {
  Bench erdma("erdma");
  CHECK(erdma.enter(IBV_QPS_INIT) == 0);
  CHECK(erdma.enter(IBV_QPS_ERR) == 0);
  CHECK(erdma.post(IBV_WR_SEND, 8) == -EIO);
  CHECK(erdma.named);
}

TEST_CASE("simulation: what is posted too early", "[simulation][profiles]") {
  SECTION("rxe says no, names nothing, and keeps it") {
    Bench bench("rxe");
    CHECK(bench.post(IBV_WR_SEND, 8) == EINVAL);
    CHECK(bench.bad == nullptr);
    CHECK(bench.enter(IBV_QPS_ERR) == 0);
    CHECK(bench.post(IBV_WR_SEND, 8) == 0);
  }
  SECTION("hns says no") {
    Bench bench("hns");
    CHECK(bench.post(IBV_WR_SEND, 8) == EINVAL);
    CHECK(bench.named);
  }
  SECTION("mlx5 keeps it") {
    Bench bench("mlx5");
    CHECK(bench.post(IBV_WR_SEND, 8) == 0);
  }
  SECTION("without WRITE WITH IMMEDIATE it is refused in any state") {
    Bench bench("iwarp-no-imm");
    CHECK(bench.post(IBV_WR_RDMA_WRITE_WITH_IMM) == -EINVAL);
    CHECK(bench.named);
    CHECK(bench.post(IBV_WR_RDMA_WRITE) == 0);
  }
}

TEST_CASE("simulation: memory windows as drivers have them", "[simulation][profiles]") {
  SECTION("claimed, and not there") {
    for (const char* name : {"bnxt_re", "hns"}) {
      Bench bench(name);
      ibv_device_attr attributes{};
      REQUIRE(ibv_query_device(bench.context, &attributes) == 0);
      CHECK((attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0);
      CHECK(ibv_alloc_mw(bench.pd, IBV_MW_TYPE_2) == nullptr);
      CHECK(errno == EOPNOTSUPP);
    }
  }
  SECTION("there, and not claimed") {
    Bench bench("irdma-e810");
    ibv_device_attr attributes{};
    REQUIRE(ibv_query_device(bench.context, &attributes) == 0);
    CHECK(attributes.device_cap_flags == 0);
    bench.window = ibv_alloc_mw(bench.pd, IBV_MW_TYPE_2);
    bench.be_ready();
    CHECK(bench.post(IBV_WR_BIND_MW) == 0);
    CHECK_THAT(bench.violation(), Contains("does not claim"));
    CHECK(bench.completion() == IBV_WC_SUCCESS);
  }
  SECTION("bound once; again only after it was invalidated") {
    Bench bench("rxe");
    bench.window = ibv_alloc_mw(bench.pd, IBV_MW_TYPE_2);
    bench.be_ready();
    CHECK(bench.post(IBV_WR_BIND_MW) == 0);
    CHECK(bench.completion() == IBV_WC_SUCCESS);
    CHECK(bench.post(IBV_WR_LOCAL_INV) == 0);
    CHECK(bench.completion() == IBV_WC_SUCCESS);
    bench.window->rkey = ibv_inc_rkey(bench.window->rkey);  // which the program has to track
    CHECK(bench.post(IBV_WR_BIND_MW) == 0);
    CHECK(bench.completion() == IBV_WC_SUCCESS);
    CHECK(bench.post(IBV_WR_BIND_MW) == 0);
    CHECK(bench.completion() == IBV_WC_MW_BIND_ERR);
  }
  SECTION("a key that changes although the post was refused") {
    Bench bench("irdma-gen3");
    bench.window = ibv_alloc_mw(bench.pd, IBV_MW_TYPE_2);
    bench.be_ready();
    while (bench.post(IBV_WR_SEND, 8) == 0) {
    }
    const std::uint32_t key = bench.window->rkey;
    CHECK(bench.post(IBV_WR_BIND_MW) == ENOMEM);
    CHECK(bench.window->rkey == ibv_inc_rkey(key));
  }
}

TEST_CASE("simulation: completion queues as drivers make them", "[simulation][profiles]") {
  struct Row {
    const char* profile;
    int reported, usable, resized;
  };
  const Row row =
      GENERATE(Row{"rxe", 127, 127, 0}, Row{"mlx5", 127, 127, 0}, Row{"bnxt_re", 255, 127, 0},
               Row{"irdma-e810", 100, 100, 0}, Row{"erdma", 128, 128, EOPNOTSUPP});
  CAPTURE(row.profile);
  Bench bench(row.profile);
  CHECK(bench.cq->cqe == row.reported);
  CHECK(static_cast<Queue*>(bench.cq)->usable == row.usable);
  CHECK(ibv_resize_cq(bench.cq, 1000) == row.resized);
  // One entry more than fits.
  auto& queue = *static_cast<Queue*>(bench.cq);
  for (int i = 0; i <= queue.usable; ++i) queue.push({});
  CHECK(bench.violation() == "a completion queue was overrun");
  queue.entries.clear();
}

TEST_CASE("simulation: a refused resize frees the ring in use on one device",
          "[simulation][profiles]") {
  Bench bench("bnxt_re");
  bench.world.fail_call(1);
  CHECK(ibv_resize_cq(bench.cq, 1000) == ENOMEM);
  CHECK_THAT(bench.violation(), Contains("freed the ring in use"));
}

TEST_CASE("simulation: a completion vector that is not there", "[simulation][profiles]") {
  const auto [name, error] = GENERATE(std::pair{"mlx5", EINVAL}, std::pair{"erdma", EIO});
  Bench bench(name);
  CHECK(bench.context->num_comp_vectors > 1);
  CHECK(ibv_create_cq(bench.context, 10, nullptr, nullptr, bench.context->num_comp_vectors) ==
        nullptr);
  CHECK(errno == error);
  ibv_cq* last =
      ibv_create_cq(bench.context, 10, nullptr, nullptr, bench.context->num_comp_vectors - 1);
  REQUIRE(last != nullptr);
  ibv_destroy_cq(last);
}

TEST_CASE("simulation: entries and receives that a queue pair leaves behind",
          "[simulation][profiles]") {
  // Uses four of the shared queue's eight receives and does not poll their completions.
  const auto leave_behind = [](Bench& bench) {
    REQUIRE(bench.post_shared(8) == 0);
    auto& shared = *static_cast<SharedReceives*>(bench.srq);
    auto& qp = *static_cast<QueuePair*>(bench.qp);
    const bool tracked = qp.device_of().profile.leftovers != Leftovers::kStay;
    for (int i = 0; i < 4; ++i) {
      shared.posted.pop_front();
      Completion entry{};
      entry.wc.qp_num = qp.qp_num;
      entry.wc.opcode = IBV_WC_RECV;
      entry.owner = qp.serial;
      entry.shared = tracked ? &shared : nullptr;
      static_cast<Queue*>(bench.cq)->push(entry);
    }
    ibv_destroy_qp(std::exchange(bench.qp, nullptr));
    ibv_wc wc{};
    int seen = 0;
    while (ibv_poll_cq(bench.cq, 1, &wc) == 1) ++seen;
    return seen;
  };
  SECTION("rxe: they are still there") {
    Bench bench("rxe", 0, true);
    CHECK(leave_behind(bench) == 4);
    CHECK(bench.post_shared(4) == 0);
  }
  SECTION("mlx5: they are gone, and the slots are free") {
    Bench bench("mlx5", 0, true);
    CHECK(leave_behind(bench) == 0);
    CHECK(bench.post_shared(4) == 0);
  }
  SECTION("bnxt_re: they are gone, and so are the slots") {
    Bench bench("bnxt_re", 0, true);
    CHECK(leave_behind(bench) == 0);
    CHECK(bench.post_shared(1) == ENOMEM);
  }
  SECTION("irdma: whoever polls them reads memory that was freed") {
    Bench bench("irdma-gen3", 0, true);
    CHECK(leave_behind(bench) == 0);
    CHECK_THAT(bench.violation(), Contains("after its queue pair had gone"));
  }
}

TEST_CASE("simulation: a full shared queue that names no request", "[simulation][profiles]") {
  Bench mlx5("mlx5", 0, true);
  CHECK(mlx5.post_shared(9) == ENOMEM);
  CHECK(mlx5.bad_receive != nullptr);
  CHECK(mlx5.post_shared(1) == ENOMEM);
  CHECK(mlx5.bad_receive != nullptr);
}

TEST_CASE("simulation: the same of a device over a stream", "[simulation][profiles]") {
  Bench iwarp("iwarp", 0, true);
  CHECK(iwarp.post_shared(8) == 0);
  CHECK(iwarp.post_shared(1) == -ENOMEM);
  CHECK(iwarp.bad_receive == nullptr);
}

TEST_CASE("simulation: what the counts say of a few calls", "[simulation][costs]") {
  Bench bench("mlx5", 128);
  Device& device = Device::of(bench.context->device);
  const Costs before = bench.world.costs(device);
  bench.be_ready();
  CHECK(bench.post(IBV_WR_SEND, 8, IBV_SEND_INLINE) == 0);
  CHECK(bench.post(IBV_WR_SEND, 8) == 0);
  alignas(4096) static std::array<std::byte, 3 * 4096> pages;
  ibv_mr* more = ibv_reg_mr(bench.pd, pages.data() + 1, 4096, 0);
  Costs costs = bench.world.costs(device) - before;
  CHECK(costs.slow_text() == "modify_qp 3, reg_mr 1");
  CHECK(costs.slow_calls() == 4);
  CHECK(costs.rdma_cm_calls() == 0);
  CHECK(costs.doorbells == 2);
  CHECK(costs.requests == 2);
  CHECK(costs.not_inline == 1);
  CHECK(costs.registrations == 1);
  CHECK(costs.keys == 1);
  CHECK(costs.translation_entries == 2);
  CHECK(costs.pinned == 4096);
  CHECK(ibv_dereg_mr(more) == 0);
  costs = bench.world.costs(device) - before;
  CHECK(costs.translation_entries == 0);
  CHECK(costs.slow_text() == "dereg_mr 1, modify_qp 3, reg_mr 1");
}

TEST_CASE("simulation: memory that is advised to be huge pages takes few entries",
          "[simulation][costs]") {
  constexpr std::size_t kHuge = 2 << 20;
  Bench bench("mlx5");
  Device& device = Device::of(bench.context->device);
  void* all = mmap(nullptr, 4 * kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(all != MAP_FAILED);
  auto* at = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(all) + kHuge - 1) /
                                          kHuge * kHuge);
  const auto entries_of = [&](std::byte* begin, std::size_t size) {
    const Costs before = bench.world.costs(device);
    ibv_mr* made = ibv_reg_mr(bench.pd, begin, size, 0);
    const std::int64_t entries = (bench.world.costs(device) - before).translation_entries;
    ibv_dereg_mr(made);
    return entries;
  };
  CHECK(entries_of(at, 2 * kHuge) == 1024);
  (void)madvise(at, 2 * kHuge, MADV_HUGEPAGE);  // some kernels lack it
  CHECK(entries_of(at, 2 * kHuge) == 2);
  CHECK(entries_of(at + kHuge, kHuge) == 1);
  CHECK(entries_of(at + 4096, kHuge) == 512);
  CHECK(entries_of(at, 3 * kHuge) == 1536);
  munmap(at, kHuge);
  CHECK(page_size_of(at, kHuge) == 4096);
  CHECK(page_size_of(at + kHuge, kHuge) == kHuge);
  munmap(all, 4 * kHuge);
  CHECK(process_mappings() > 10);
}
