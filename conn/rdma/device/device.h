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

/// Largest number of pieces of memory that one send request gathers. With any driver, this many
/// take no more space on a send queue than the inline data that is requested in any case.
inline constexpr std::size_t kMostPieces = 6;

/// True for the error codes by which drivers say that the device does not support an operation:
/// EINVAL, EOPNOTSUPP and ENOSYS.
bool refused_as_such(int err) noexcept;

class Device {
 public:
  /// Opens the device and tests the features that rdma:// needs. Throws VerbsError; if the device
  /// lacks a needed feature, the error's text names it.
  Device(ibv_device* device, std::uint32_t inline_data);

  const std::string& name() const noexcept { return name_; }
  ibv_context* verbs() const noexcept { return handle_.get(); }
  int event_fd() const noexcept { return handle_->async_fd; }
  const ibv_device_attr& limits() const noexcept { return attributes_; }
  /// True for an iWARP device, which differs from InfiniBand and RoCE in connection set-up, retries
  /// and completions.
  bool iwarp() const noexcept { return iwarp_; }

  // --- keys that work on one queue pair only (memory windows of type 2) ---
  /// Whether the device can bind a key to one queue pair.
  enum class Binding : std::uint8_t {
    /// The device has no memory windows of type 2, or it refused to bind one.
    kNo,
    /// The device has memory windows of type 2, but has not carried out a bind yet.
    kUnsure,
    kYes,
  };
  Binding binding() const noexcept { return binding_; }
  /// Records that the device has carried out the bind of a key.
  void prove_binding() noexcept {
    if (binding_ == Binding::kUnsure) binding_ = Binding::kYes;
  }
  void give_up_binding() noexcept { binding_ = Binding::kNo; }

  // --- queues ---
  /// True if connections may share a receive queue (SRQ), which the device must not have refused.
  /// False on iWARP, which does not retry a message that finds no posted receive: there each
  /// connection has receives of its own.
  bool shares_receives() const noexcept { return !iwarp_ && !srq_refused_; }
  void give_up_shared_receives() noexcept { srq_refused_ = true; }
  /// Like ibv_create_qp(), but where the device refuses the requested amount of inline data or
  /// number of pieces per send, tries smaller ones; `attributes` returns what it accepted. Throws
  /// VerbsError.
  Qp create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes);
  std::uint32_t max_send_queue() const noexcept;
  /// The largest number of pieces of memory that one send request may gather, at most kMostPieces.
  std::uint32_t max_pieces() const noexcept { return max_pieces_; }
  /// The largest number of entries that a completion queue of this device can have.
  std::uint32_t max_cq() const noexcept;
  /// Returns the completion vector for the queues of a loop. `asked` is the requested one; if it is
  /// negative, the loop's index `loop` in its group selects one, and without an index each call
  /// returns the next one in turn. Throws VerbsError if the device has no vector `asked`.
  int completion_vector(int asked, std::optional<std::size_t> loop) const;

  // --- workarounds for one driver, rxe or irdma, which the vendor id of the device identifies ---
  /// True for soft-RoCE. When it retransmits, it also executes a bind again, fails at that and
  /// stops without reporting an error. So a bind is posted only while no other send is in flight.
  bool binds_alone() const noexcept { return rxe_; }
  /// True for soft-RoCE. When a process dies, its kernel driver destroys the youngest objects
  /// first, and waits 50 s for a queue pair to which an older memory window is bound; meanwhile the
  /// peers are not told. So memory windows are allocated after the queue pair and are not moved to
  /// another one.
  bool keys_are_younger() const noexcept { return rxe_; }
  /// True for soft-RoCE, which checks an access with a bound key against the whole memory region
  /// instead of the part that was bound. So each receive window gets a memory region of its own.
  bool keys_reach_whole_regions() const noexcept { return rxe_; }
  /// True for soft-RoCE. A disconnect through a port without a link blocks for ever there, and so
  /// does rdma_destroy_id(). So the state of the port must be queried first, even if no event has
  /// reported it down.
  bool asks_port_first() const noexcept { return rxe_; }

  /// True for irdma: the versions in rdma-core 44 to 51 report the receive that a WRITE WITH
  /// IMMEDIATE consumed as a plain receive (IBV_WC_RECV), which only has the flag IBV_WC_WITH_IMM
  /// set. On other devices that combination means a SEND with an immediate.
  bool immediates_by_flag() const noexcept { return irdma_; }

  // --- ports ---
  static constexpr int kPorts = 64;  ///< upper bound of the number of ports: no device has so many
  bool port_down(int port) const noexcept { return ((down_ports_ >> (port & 63)) & 1) != 0; }
  bool any_port_down() const noexcept { return down_ports_ != 0; }
  /// Whether port_down() is true for on_no_route() alone: no query and no event has confirmed it.
  bool port_suspected(int port) const noexcept {
    return ((suspected_ports_ >> (port & 63)) & 1) != 0;
  }
  void on_port_event(int port, bool down) noexcept;
  /// Queries the state of the port, because the event that reports a change may come late or never.
  /// Does not query again if this port was the last one queried, less than 50 ms ago. Returns
  /// port_down() afterwards.
  bool ask_port(int port, ae::TimePoint now) noexcept;
  /// Records that the port is down, until it is queried 50 ms later: a request failed because the
  /// port has no link or no route. Its state still says active for a moment when a link goes down.
  /// A lack of memory for packets looks the same, so this is no reason to end other connections.
  void on_no_route(int port, ae::TimePoint now) noexcept;
  void ask_ports_that_are_down(ae::TimePoint now) noexcept;
  /// Returns the active MTU of the port, queried at most a second ago; the largest MTU (4096) if
  /// the device does not report it.
  ibv_mtu active_mtu(int port, ae::TimePoint now) noexcept;
  /// True if the link layer of the port is InfiniBand, false if it is Ethernet. Throws VerbsError
  /// if the device does not answer the query.
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
  std::uint64_t down_ports_ = 0;       // bit n is set while port n is down
  std::uint64_t suspected_ports_ = 0;  // those of down_ports_ that on_no_route() reported
  ae::TimePoint asked_at_{};           // time at which port asked_port_ was last queried
  int asked_port_ = -1;
  ae::TimePoint mtu_asked_at_{};
  int mtu_port_ = -1;  // port whose MTU is in active_mtu_; -1: no MTU was queried yet
  ibv_mtu active_mtu_ = IBV_MTU_4096;
  std::uint64_t link_layer_known_ = 0, infiniband_ports_ = 0;
};

}}}  // namespace conn::rdma
