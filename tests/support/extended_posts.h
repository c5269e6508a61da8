// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The part of a queue pair's driver behind ibv_wr_...(3): it builds an ibv_send_wr of the calls,
// for the operation that this library posts so (a write with an immediate value, of one piece).

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace testing {

/// The base class behind ibv_qp of a queue pair, as in `struct Self : ibv_qp, ExtendedPosts<Self>`:
/// an ibv_qp_ex begins with its ibv_qp. Self has on_start(), on_write() and post(ibv_send_wr&),
/// which returns 0 or an errno.
template <class Self>
class ExtendedPosts {
 public:
  /// Makes it a queue pair for ibv_wr_...().
  void extend() {
    static_assert(offsetof(ibv_qp_ex, qp_base) == 0 && sizeof(ibv_qp) % alignof(ibv_qp_ex) == 0);
    ibv_qp_ex& functions =
        *reinterpret_cast<ibv_qp_ex*>(static_cast<ibv_qp*>(static_cast<Self*>(this)));
    functions.wr_start = [](ibv_qp_ex* qp) {
      of(qp).work_ = {};
      of(qp).on_start();
    };
    functions.wr_rdma_write_imm = [](ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t to,
                                     __be32 value) {
      of(qp).on_write();
      ibv_send_wr& work = of(qp).work_;
      work.wr_id = qp->wr_id;
      work.send_flags = qp->wr_flags;
      work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      work.imm_data = value;
      work.wr.rdma.remote_addr = to;
      work.wr.rdma.rkey = rkey;
    };
    functions.wr_set_sge = [](ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t from,
                              std::uint32_t length) {
      of(qp).attach({from, length, lkey});
    };
    functions.wr_set_inline_data = [](ibv_qp_ex* qp, void* from, std::size_t length) {
      of(qp).attach(
          {reinterpret_cast<std::uintptr_t>(from), static_cast<std::uint32_t>(length), 0});
    };
    functions.wr_complete = [](ibv_qp_ex* qp) { return of(qp).post(of(qp).work_); };
  }

 private:
  static Self& of(ibv_qp_ex* qp) { return static_cast<Self&>(*reinterpret_cast<ibv_qp*>(qp)); }
  void attach(const ibv_sge& piece) {
    piece_ = piece;
    work_.sg_list = &piece_;
    work_.num_sge = 1;
  }

  alignas(ibv_qp_ex) std::byte behind_[sizeof(ibv_qp_ex) - sizeof(ibv_qp)]{};
  ibv_send_wr work_{};
  ibv_sge piece_{};
};

}  // namespace testing
