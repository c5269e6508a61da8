// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A carrier over a Link: what rdma_cm, the device and the loop report arrives here, changes the
// link and its parts, and at last ends the connection. What the core asks of a carrier is in the
// class derived from this one, RdmaCarrier.
//
//   Setup          finds an address and makes the link (connecting side only; freed afterwards)
//   Link           what rdma_cm and the device have of the connection
//     Stream         the protocol
//     WindowMemory   receive windows and their keys
//     Sender         staged bytes, chains of requests, completions
//     Path           addresses, device, route
//   Reader         read budget, and what is looked at in place
//   Ending         the steps after the last byte, or after a failure
//   Deadline       the time-out of the present phase
//
// The parts know nothing of this class. They return what is to be done, and it is done here; Setup
// and Deadline, which wait for something, report through SetupUser and DeadlineUser.

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/deadline.h"
#include "conn/rdma/ending.h"
#include "conn/rdma/link.h"
#include "conn/rdma/reader.h"
#include "conn/rdma/setup.h"
#include "conn/spi/queued_carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class LinkedCarrier;

/// Owns accepted connections until they are handed over.
class AcceptOwner {
 public:
  /// The connection is ready for data.
  virtual void on_established(LinkedCarrier& carrier) noexcept = 0;
  /// It failed before it was handed over. Closes it.
  virtual void on_lost(LinkedCarrier& carrier) noexcept = 0;

 protected:
  virtual ~AcceptOwner() = default;
};

class LinkedCarrier : public QueuedCarrier,
                      protected LoopConnection,
                      protected QueuePairUser,
                      protected CmUser,
                      protected DeadlineUser,
                      protected SetupUser {
 public:
  ~LinkedCarrier() override;
  /// The listener has handed this connection over, or has been destroyed.
  void leave_listener() noexcept { listener_ = nullptr; }

 protected:
  /// After a failure the peer is notified, but we wait no longer than this for its answer.
  static constexpr ae::Duration kFailurePatience = std::chrono::milliseconds(500);

  LinkedCarrier(const ConnectionType& type, LoopState& state, const Settings& settings, Role role,
                AcceptOwner* listener);

  // LoopConnection
  void post_due() noexcept override;
  void on_tick(ae::TimePoint now, ae::Duration late) noexcept override;
  ae::TimePoint next_tick() const noexcept override {
    return std::min(link_.stream.next_tick(), link_.sender.ask_at());
  }
  void on_memory() noexcept override;
  void reap() override;
  std::optional<ae::TimePoint> pace_at() const noexcept override { return pace_.at; }

  // CmUser, QueuePairUser
  void on_cm_event(const CmEvent& event) override;
  void on_sends_done(std::uint32_t sequence) override;
  void on_immediate(std::uint32_t length) override;
  void on_message(std::span<const std::byte> bytes) override;
  void on_work_failed(ibv_wc_status status, bool was_send, std::uint32_t sequence) override;
  void on_device_event(const std::string& what) override;
  void on_no_memory() noexcept override;  // and DeadlineUser
  void on_communication_established() override;
  void on_refusal() override;
  void on_last_receive() override;
  void on_port_down(int port, ae::Duration since) override;
  void on_address_change(const std::vector<SocketAddress>& present) override;
  ReceiveQueue* receives() noexcept override { return link_.receives(); }

  // DeadlineUser, SetupUser
  void on_deadline(Deadline::Of what) override;
  void on_set_up() override;
  void on_set_up_failed(Failure why) noexcept override;

  // --- while it is open (linked_carrier.cc)
  /// Call after every input to the stream.
  void after_input();
  /// There is no memory to send `size` bytes from: on_memory() is called when there may be some.
  void wait_for_memory(std::size_t size);
  bool has_undelivered() const noexcept;

  // --- the end (linked_carrier_end.cc)
  enum class Unread : bool { kKeep, kDrop };  // unread bytes: kept, or dropped
  /// Only the first failure counts. Bytes that arrived before it can still be read; then it is
  /// reported.
  void end_with(Failure failure, Unread unread = Unread::kKeep) noexcept;
  void begin_disconnect(ae::Duration patience) noexcept;
  void begin_close() noexcept;
  void begin_abort() noexcept;
  /// Call when something was confirmed while closing.
  void continue_close() noexcept;
  void finish() noexcept;
  void tear_down() noexcept;
  /// Ends the use of views and reservations.
  void drop_kept() noexcept;

  struct Pace {  // when to post again although nothing else happens
    std::optional<ae::TimePoint> at;
    ae::TimerId timer = 0;
    void clear(ae::EventLoop* loop) noexcept;
  };

  Link link_;
  Ending ending_;
  Deadline deadline_;
  std::unique_ptr<Setup> setup_;  // while connecting
  Reader reader_;
  Pace pace_;
  ae::TimePoint close_deadline_{};        // of kClosing
  Failure pending_failure_;               // reported once the unread bytes have been read
  bool delivering_ = false;               // the loop ends: delivery of all bytes must be proved
  bool waits_for_first_message_ = false;  // iWARP: the connecting side must send the first message

 private:
  bool post_chain();
  bool secure_memory() noexcept;
  void on_memory_back() noexcept;
  void tell_references(std::error_code error) noexcept;
  void peer_closed();

  AcceptOwner* listener_;                   // null once it has handed this connection over
  std::unique_ptr<std::byte[]> left_over_;  // unread bytes, once the windows are gone
};

}}}  // namespace conn::rdma
