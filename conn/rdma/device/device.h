// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One RDMA device as one loop has it open: what it reports, and what it was seen to do. Capability
// bits are not trusted: what is needed is tried once, and what was refused is not requested again.
// docs/devices.md has the table of devices.

#include <cstdint>
#include <optional>
#include <string>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Most pieces of memory that one request is sent from: with any driver, this many take no more
/// space on a send queue than the inline data that is requested anyway.
inline constexpr std::size_t kMostPieces = 6;

/// The error means that this device does not support the operation.
bool refused_as_such(int err) noexcept;

class Device {
 public:
  /// Opens the device and tries what rdma:// needs. Throws VerbsError; where the device cannot
  /// serve, its text names what is missing.
  Device(ibv_device* device, std::uint32_t inline_data);

  const std::string& name() const noexcept { return name_; }
  ibv_context* verbs() const noexcept { return handle_.get(); }
  int event_fd() const noexcept { return handle_->async_fd; }
  const ibv_device_attr& limits() const noexcept { return attributes_; }
  /// iWARP differs from InfiniBand and RoCE in connection set-up, retries and completions.
  bool iwarp() const noexcept { return iwarp_; }

  // --- keys of one queue pair (memory windows of type 2) ---
  enum class Binding : std::uint8_t {
    kNo,      ///< not available, or refused
    kUnsure,  ///< available, but the device has not carried out a bind yet
    kYes,
  };
  Binding binding() const noexcept { return binding_; }
  /// A bind was carried out.
  void prove_binding() noexcept {
    if (binding_ == Binding::kUnsure) binding_ = Binding::kYes;
  }
  void give_up_binding() noexcept { binding_ = Binding::kNo; }

  // --- queues ---
  /// Shared receive queues are reported and were not refused. iWARP does not retry a message that
  /// finds no receive, so there each connection has receives of its own.
  bool shares_receives() const noexcept { return !iwarp_ && !srq_refused_; }
  void give_up_shared_receives() noexcept { srq_refused_ = true; }
  /// Like ibv_create_qp(), with as much inline data and as many pieces per send as the device
  /// accepts; `attributes` returns how much. Throws VerbsError.
  Qp create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes);
  std::uint32_t max_send_queue() const noexcept;
  /// Most pieces of memory that one request may send from, at most kMostPieces.
  std::uint32_t max_pieces() const noexcept { return max_pieces_; }
  /// Most entries of a completion queue.
  std::uint32_t max_cq() const noexcept;
  /// Completion vector for the queues of a loop: the requested one; if `asked` is negative, the one
  /// of the loop's index in its group; without an index the next in turn. Throws VerbsError for a
  /// vector that does not exist.
  int completion_vector(int asked, std::optional<std::size_t> loop) const;

  // --- workarounds for one driver, selected by its name: rxe, irdma ---
  /// When Soft-RoCE retransmits, it executes a bind again too, fails at it and stops without
  /// reporting an error: a bind needs the send queue to itself.
  bool binds_alone() const noexcept { return rxe_; }
  /// When a process dies, Soft-RoCE's kernel driver destroys its youngest objects first, and waits
  /// 50 s for a queue pair to which an older memory window is bound; the peers learn nothing
  /// meanwhile. So memory windows are allocated after the queue pair and stay with it.
  bool keys_are_younger() const noexcept { return rxe_; }
  /// Soft-RoCE checks accesses with a bound key against its whole region, not against the part that
  /// was bound: there each window is a region of its own.
  bool keys_reach_whole_regions() const noexcept { return rxe_; }
  /// On Soft-RoCE a disconnect through a port without a link waits for ever, and rdma_destroy_id()
  /// with it: the port must be queried first, even where nothing is known to be wrong.
  bool asks_port_first() const noexcept { return rxe_; }

  /// irdma of rdma-core 44 to 51 reports the receive that a WRITE WITH IMMEDIATE consumed as a
  /// plain receive, except for the flag. On other devices that combination is a SEND with an
  /// immediate.
  bool immediates_by_flag() const noexcept { return irdma_; }

  // --- ports ---
  static constexpr int kPorts = 64;  ///< a device has fewer
  bool port_down(int port) const noexcept { return ((down_ports_ >> (port & 63)) & 1) != 0; }
  bool any_port_down() const noexcept { return down_ports_ != 0; }
  void on_port_event(int port, bool down) noexcept;
  /// Queries the device, whose event may come later than the change it reports, or never. Queries
  /// at most every 50 ms. Returns port_down() afterwards.
  bool ask_port(int port, ae::TimePoint now) noexcept;
  void ask_ports_that_are_down(ae::TimePoint now) noexcept;
  /// The active MTU of the port, at most a second old; the maximum where the device does not report
  /// it.
  ibv_mtu active_mtu(int port, ae::TimePoint now) noexcept;
  /// The link layer of the port is InfiniBand, not Ethernet.
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
  std::uint64_t down_ports_ = 0;  // one bit per port
  ae::TimePoint asked_at_{};      // when the device was last asked about asked_port_
  int asked_port_ = -1;
  ae::TimePoint mtu_asked_at_{};
  int mtu_port_ = -1;  // the port of active_mtu_
  ibv_mtu active_mtu_ = IBV_MTU_4096;
  std::uint64_t link_layer_known_ = 0, infiniband_ports_ = 0;
};

}}}  // namespace conn::rdma
