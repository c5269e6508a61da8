// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One RDMA device as one loop has it open: what it claims, and what it was seen to do. Capability
// bits are not believed: what matters is tried once, and what was refused once is not asked again.
// docs/devices.md has the table of devices.

#include <cstdint>
#include <optional>
#include <string>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// An error that says: not on this device.
bool refused_as_such(int err) noexcept;

class Device {
 public:
  /// Opens it and tries what rdma:// needs. Throws VerbsError: with a sentence that names what is
  /// missing where this device cannot serve.
  Device(ibv_device* device, std::uint32_t inline_data);

  const std::string& name() const noexcept { return name_; }
  ibv_context* verbs() const noexcept { return handle_.get(); }
  int event_fd() const noexcept { return handle_->async_fd; }
  const ibv_device_attr& limits() const noexcept { return attributes_; }
  /// Connection set-up, retries and completions of iWARP differ from those of InfiniBand and RoCE.
  bool iwarp() const noexcept { return iwarp_; }

  // --- keys of one queue pair (memory windows of type 2) ---
  enum class Binding : std::uint8_t {
    kNo,      ///< there are none, or they were refused
    kUnsure,  ///< they can be had, but the device has not carried out a bind yet
    kYes,
  };
  Binding binding() const noexcept { return binding_; }
  /// A bind was carried out.
  void prove_binding() noexcept {
    if (binding_ == Binding::kUnsure) binding_ = Binding::kYes;
  }
  void give_up_binding() noexcept { binding_ = Binding::kNo; }

  // --- queues ---
  /// Shared receive queues: claimed, and not refused. iWARP has no second try for who finds no
  /// receive: there everybody has their own.
  bool shares_receives() const noexcept { return !iwarp_ && !srq_refused_; }
  void give_up_shared_receives() noexcept { srq_refused_ = true; }
  /// As ibv_create_qp(), with as much inline data and as many pieces to send from as the device
  /// takes; `attributes` says how much.
  /// Throws VerbsError.
  Qp create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes);
  std::uint32_t max_send_queue() const noexcept;
  /// Pieces of memory that one request may send from, kMostPieces at most.
  std::uint32_t max_pieces() const noexcept { return max_pieces_; }
  /// Entries of the longest completion queue.
  std::uint32_t max_cq() const noexcept;
  /// For the completion queues of a loop: the one that is asked for, else (where that is negative)
  /// that of the loop's index in its group, else the next. Throws VerbsError for one that there is
  /// not.
  int completion_vector(int asked, std::optional<std::size_t> loop) const;

  // --- what one driver needs and others do not; asked for by its name: rxe, irdma ---
  /// Soft-RoCE, when it sends again what was lost, carries out a bind again too, fails at it and
  /// stands still without a word: binds need the send queue to themselves.
  bool binds_alone() const noexcept { return rxe_; }
  /// Soft-RoCE's kernel, when a process dies, destroys its youngest objects first, and waits 50 s
  /// at a queue pair to which an older memory window is bound; the peers learn nothing meanwhile.
  /// So windows are allocated after the queue pair and stay with it.
  bool keys_are_younger() const noexcept { return rxe_; }
  /// Soft-RoCE compares what a bound key is used for with its whole region, not with the part that
  /// was bound: there each window is a region of its own.
  bool keys_reach_whole_regions() const noexcept { return rxe_; }
  /// A goodbye through a port without a link waits in Soft-RoCE, and rdma_destroy_id() with it,
  /// without end: the port has to be asked first, also where nothing is wrong.
  bool asks_port_first() const noexcept { return rxe_; }

  /// irdma of rdma-core 44 to 51 reports what a WRITE WITH IMMEDIATE used up as a plain receive,
  /// but for the flag. Elsewhere that is a SEND with an immediate.
  bool immediates_by_flag() const noexcept { return irdma_; }

  // --- ports ---
  static constexpr int kPorts = 64;  ///< a device has fewer
  bool port_down(int port) const noexcept { return ((down_ports_ >> (port & 63)) & 1) != 0; }
  bool any_port_down() const noexcept { return down_ports_ != 0; }
  void on_port_event(int port, bool down) noexcept;
  /// Asks the device, whose event may come later than what it tells of, or never. Not more often
  /// than every 50 ms. What port_down() says afterwards.
  bool ask_port(int port, ae::TimePoint now) noexcept;
  void ask_ports_that_are_down(ae::TimePoint now) noexcept;
  /// What its port takes now, or a second ago; the most there is where the device does not tell.
  ibv_mtu active_mtu(int port, ae::TimePoint now) noexcept;
  /// Its link layer is InfiniBand's, not Ethernet's.
  bool infiniband(int port, ae::TimePoint now);

 private:
  void try_queue_pair(std::uint32_t inline_data);
  bool ask_facts(int port, ae::TimePoint now) noexcept;
  void try_immediate(ibv_qp* qp) const;

  std::string name_;
  DeviceHandle handle_;
  ibv_device_attr attributes_{};
  bool iwarp_ = false, rxe_ = false, irdma_ = false, srq_refused_ = false;
  Binding binding_ = Binding::kNo;
  std::uint32_t max_inline_ = 1024, max_pieces_ = 1;
  std::uint64_t down_ports_ = 0;  // a bit for each
  ae::TimePoint asked_at_{};      // when the device was last asked about asked_port_
  int asked_port_ = -1;
  ae::TimePoint mtu_asked_at_{};
  int mtu_port_ = -1;  // whose active_mtu_ is
  ibv_mtu active_mtu_ = IBV_MTU_4096;
  std::uint64_t link_layer_known_ = 0, infiniband_ports_ = 0;
};

}}}  // namespace conn::rdma
