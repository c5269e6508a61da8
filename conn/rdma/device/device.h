// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An RDMA device that one event loop has opened: the limits that the device reports, and which
// features have been seen to work. Capability bits are not trusted: each feature that the library
// needs is tried once, and a request that the device refused is not made again. docs/devices.md has
// the table of devices.

#include <cstdint>
#include <optional>
#include <string>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Largest number of pieces of memory (scatter/gather entries) of one send request. With all known
/// drivers, this many take no more space on a send queue than the inline data that is requested in
/// any case.
inline constexpr std::size_t kMostPieces = 6;

/// Returns true for the error codes with which drivers report that the device does not support an
/// operation: EINVAL, EOPNOTSUPP and ENOSYS.
bool refused_as_such(int err) noexcept;

class Device {
 public:
  /// Opens the device and tests the features that rdma:// needs. `inline_data`: bytes of inline
  /// data to request. Throws VerbsError; if the device lacks a needed feature, the error's text
  /// names it.
  Device(ibv_device* device, std::uint32_t inline_data);

  const std::string& name() const noexcept { return name_; }
  ibv_context* verbs() const noexcept { return handle_.get(); }
  int event_fd() const noexcept { return handle_->async_fd; }
  const ibv_device_attr& limits() const noexcept { return attributes_; }
  /// True for an iWARP device, which differs from InfiniBand and RoCE in connection set-up, retries
  /// and completions.
  bool iwarp() const noexcept { return iwarp_; }

  // --- keys that work on one queue pair only (memory windows of type 2) ---
  /// Says whether the device can bind a key to one queue pair.
  enum class Binding : std::uint8_t {
    /// The device has no memory windows of type 2, or it refused to bind one.
    kNo,
    /// The device reports memory windows of type 2, but has not carried out a bind yet. So it is
    /// unknown whether they work.
    kUnsure,
    kYes,
  };
  Binding binding() const noexcept { return binding_; }
  /// Records that the device has bound a key to a queue pair, so that it is known to support this.
  void prove_binding() noexcept {
    if (binding_ == Binding::kUnsure) binding_ = Binding::kYes;
  }
  void give_up_binding() noexcept { binding_ = Binding::kNo; }

  // --- creating queues ---------------------------------------------------------------------------
  /// Returns true if connections may share a receive queue (SRQ). False if the device has refused
  /// to create one. False on iWARP, which does not retry a message that finds no posted receive:
  /// there each connection needs its own receives.
  bool shares_receives() const noexcept { return !iwarp_ && !srq_refused_; }
  void give_up_shared_receives() noexcept { srq_refused_ = true; }
  /// Creates a queue pair. If the device refuses the requested amount of inline data or number of
  /// pieces per send, tries smaller ones; the accepted values are returned in `attributes`. Throws
  /// VerbsError.
  Qp create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes);
  std::uint32_t max_send_queue() const noexcept;
  /// Returns the number of work requests to create a send queue for, if `wanted` are wished for: at
  /// most max_send_queue(). One fewer, but not less than `least`, if the device would double the
  /// queue otherwise: a queue of soft-RoCE and bnxt_re has 2^n places, of which one stays free.
  std::uint32_t send_queue_for(std::uint32_t wanted, std::uint32_t least) const noexcept;
  /// Returns the largest number of pieces of memory (scatter/gather entries) that one send request
  /// may have, at most kMostPieces.
  std::uint32_t max_pieces() const noexcept { return max_pieces_; }
  /// Returns the largest number of entries that a completion queue of this device can have.
  std::uint32_t max_cq() const noexcept;
  /// Returns the completion vector (interrupt) for the completion queues of a loop: `asked` if that
  /// is not negative; otherwise one that is selected by `loop`, the index of the loop in its group;
  /// without an index, the next one in turn. Throws VerbsError if the device has no vector `asked`.
  int completion_vector(int asked, std::optional<std::size_t> loop) const;

  // --- workarounds for the drivers rxe and irdma, identified by the device's vendor id -----------
  /// True for soft-RoCE. When it retransmits, it also executes a bind request again; the bind then
  /// fails, and the queue pair stops without an error report. So a bind must be posted only while
  /// no other send is in flight.
  bool binds_alone() const noexcept { return rxe_; }
  /// True for soft-RoCE. When a process dies, the kernel destroys its youngest objects first, and
  /// the driver waits 50 s for a queue pair to which an older memory window is bound; until then,
  /// the peers do not learn of the end. So memory windows, whose keys peers use, must be allocated
  /// after their queue pair and must not be reused for another one.
  bool keys_are_younger() const noexcept { return rxe_; }
  /// True for soft-RoCE, which checks an access with a bound key against the whole memory region
  /// instead of the bound part. So each receive window must have its own memory region.
  bool keys_reach_whole_regions() const noexcept { return rxe_; }
  /// True for soft-RoCE. With it, rdma_disconnect() and rdma_destroy_id() block for ever if the
  /// port has no link. So the state of the port must be queried before these calls, even if no
  /// event has reported it down.
  bool asks_port_first() const noexcept { return rxe_; }

  /// True for irdma. Its versions in rdma-core 44 to 51 report a received WRITE WITH IMMEDIATE with
  /// the opcode of a SEND (IBV_WC_RECV) and the flag IBV_WC_WITH_IMM. On other devices this
  /// combination means a SEND with an immediate value.
  bool immediates_by_flag() const noexcept { return irdma_; }

  // --- state of the device's ports ---------------------------------------------------------------
  static constexpr int kPorts = 64;  ///< upper bound of the number of ports of a device
  bool port_down(int port) const noexcept { return ((down_ports_ >> (port & 63)) & 1) != 0; }
  bool any_port_down() const noexcept { return down_ports_ != 0; }
  /// Returns true if on_no_route() is the only reason for which port_down() is true: no query and
  /// no event has confirmed that the port is down.
  bool port_suspected(int port) const noexcept {
    return ((suspected_ports_ >> (port & 63)) & 1) != 0;
  }
  void on_port_event(int port, bool down) noexcept;
  /// Queries the state of the port, because the event that reports a change may come late or never,
  /// and returns port_down() afterwards. Does not query again within 50 ms, if no other port was
  /// queried in between.
  bool ask_port(int port, ae::TimePoint now) noexcept;
  /// Records that a request failed as it does if the port has no link or route: sets port_down(),
  /// and port_suspected() if that is new. The state is not queried yet (ask_port() waits 50 ms),
  /// because a port that goes down still reports the state "active" for a moment. A lack of memory
  /// for packets causes the same failure, so other connections must not be ended for it.
  void on_no_route(int port, ae::TimePoint now) noexcept;
  void ask_ports_that_are_down(ae::TimePoint now) noexcept;
  /// Returns the active MTU of the port, queried at most a second ago; the largest MTU (4096) if
  /// the device does not report it.
  ibv_mtu active_mtu(int port, ae::TimePoint now) noexcept;
  /// Returns true if the link layer of the port is InfiniBand, false if it is Ethernet. Throws
  /// VerbsError if the query fails.
  bool infiniband(int port, ae::TimePoint now);

 private:
  void try_queue_pair(std::uint32_t inline_data);
  bool ask_facts(int port, ae::TimePoint now) noexcept;
  void try_immediate(ibv_qp* qp) const;

  std::string name_;
  DeviceHandle handle_;
  ibv_device_attr attributes_{};
  bool iwarp_ = false, rxe_ = false, irdma_ = false, srq_refused_ = false;
  bool keeps_a_place_free_ = false;  // a queue pair for 2^n requests gets 2^(n+1) places
  Binding binding_ = Binding::kNo;
  std::uint32_t max_inline_ = 1024, max_pieces_ = 1;
  std::uint64_t down_ports_ = 0;       // bit n is set while port n (modulo 64) is down
  std::uint64_t suspected_ports_ = 0;  // those bits of down_ports_ that only on_no_route() has set
  ae::TimePoint asked_at_{};           // time of the last query, which was of port asked_port_
  int asked_port_ = -1;
  ae::TimePoint mtu_asked_at_{};
  int mtu_port_ = -1;  // port to which active_mtu_ belongs; -1: no MTU was queried yet
  ibv_mtu active_mtu_ = IBV_MTU_4096;
  std::uint64_t link_layer_known_ = 0, infiniband_ports_ = 0;
};

}}}  // namespace conn::rdma
