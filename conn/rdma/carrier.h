// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Carries a connection over RDMA: carries out over a queue pair what Stream decides.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/loop/loop_state.h"
#include "conn/rdma/memory/send_buffer.h"
#include "conn/rdma/memory/staging.h"
#include "conn/rdma/protocol/phase.h"
#include "conn/rdma/protocol/stream.h"
#include "conn/rdma/send_chain.h"
#include "conn/spi/queued_carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class RdmaCarrier;

/// Owns accepted connections until they are handed over.
class AcceptOwner {
 public:
  /// The connection is ready for data.
  virtual void on_established(RdmaCarrier& carrier) noexcept = 0;
  /// It failed before it was handed over. Closes it.
  virtual void on_lost(RdmaCarrier& carrier) noexcept = 0;

 protected:
  virtual ~AcceptOwner() = default;
};

class RdmaCarrier final : public QueuedCarrier,
                          private LoopUser,
                          private QueuePairUser,
                          private CmUser {
 public:
  /// For an outgoing connection. Throws VerbsError where there is no RDMA.
  RdmaCarrier(const ConnectionType& type, LoopState& state, const Settings& defaults);
  /// From a CONNECT_REQUEST; takes ownership of its id. Call accept() next.
  RdmaCarrier(const ConnectionType& type, LoopState& state, const Settings& settings, CmId id,
              AcceptOwner& listener);
  ~RdmaCarrier() override;

  /// Creates the queue pair and accepts the request. Throws VerbsError; the caller must then close
  /// the connection.
  void accept(std::span<const std::byte> private_data);
  /// The listener has handed this connection over, or has been destroyed.
  void leave_listener() noexcept { listener_ = nullptr; }
  /// Rejects the request of a connection whose accept() threw.
  void reject_request(std::string_view why) noexcept;

  std::string local_address() const override { return local_.to_string(); }
  std::string peer_address() const override { return peer_.to_string(); }
  std::optional<bool> is_local() const override;
  std::vector<std::pair<std::string, std::string>> info() const override;

 private:
  struct Sent {               // one work request on the send queue
    std::uint32_t bytes = 0;  // staged bytes it holds until it completes
    bool message = false;     // it uses one of the peer's receives
  };

  // Carrier
  void connect(const Endpoint& to) override;
  void connect_blocking(const Endpoint& to, ae::TimePoint deadline) override;
  ssize_t read(void* buffer, std::size_t size) override;
  ssize_t writev(const iovec* vectors, int count) override;
  bool peeks_in_place() const noexcept override { return settings_.in_place; }
  ssize_t peek(std::size_t together, View& view) override;
  void peek_anything() noexcept override { together_ = 1; }
  std::size_t consume(std::size_t size) noexcept override;
  bool reserves_in_place() const noexcept override { return true; }
  std::span<std::byte> reserve(std::size_t size) override;
  void commit(std::size_t size) noexcept override;
  bool sends_in_place(const Outgoing& bytes) const noexcept override;
  ssize_t send(const Outgoing& bytes) override;
  std::string path() const override;
  int shutdown() override;
  int shutdown_both() override;
  void close() noexcept override;
  bool flush(ae::TimePoint until) noexcept override;
  bool wait_for(ae::Mask direction, ae::TimePoint deadline) override;
  bool drain(ae::TimePoint until) noexcept override;
  ae::Duration linger() const noexcept override { return settings_.linger; }
  ae::Duration end_linger() const noexcept override;
  const Failure& why_ended() const noexcept override {
    return pending_failure_ ? pending_failure_ : Carrier::why_ended();
  }
  void abandon() noexcept override;
  void host_changed() noexcept override { stream_.set_connection(host().id()); }
  bool readable() const override;
  bool ready_to_read() override;
  bool writable() const override;

  // LoopUser
  void post_due() noexcept override;
  void on_tick(ae::TimePoint now, ae::Duration late) noexcept override;
  ae::TimePoint next_tick() const noexcept override {
    return std::min(stream_.next_tick(), ask_at_);
  }
  void on_memory() noexcept override;
  void reap() override;
  std::optional<ae::TimePoint> pace_at() const noexcept override { return pace_at_; }

  // CmUser, QueuePairUser
  void on_cm_event(const CmEvent& event) override;
  void on_sends_done(std::uint32_t sequence) override;
  void on_immediate(std::uint32_t length) override;
  void on_message(std::span<const std::byte> bytes) override;
  void on_work_failed(ibv_wc_status status, bool was_send, std::uint32_t sequence) override;
  void on_device_event(const std::string& what) override;
  void on_no_memory() noexcept override;
  void on_communication_established() override;
  void on_refusal() override;
  void on_last_receive() override;
  void on_port_down(int port, ae::Duration since) override;
  void on_address_change(const std::vector<SocketAddress>& present) override;
  ReceiveQueue* receives() noexcept override;

  // set-up (carrier_setup.cc)
  struct Attempt;
  void give_up_attempt() noexcept;
  bool begin_connect(const Endpoint& to, ae::Duration limit);
  void look_up_next();
  void keep(Resolved resolved);
  void try_next_address();
  void choose_next_address() noexcept;
  void told(const Failure& failure) const noexcept;
  void told_of_silence() const noexcept;
  void try_address(const SocketAddress& address);
  void on_address_failed(Failure why);
  bool try_address_again(const CmEvent& event);
  void try_again();
  void on_set_up_event(const CmEvent& event);
  void request_connection();
  void finish_request(const CmEvent& event);
  void make_queue_pair();
  void set_up();
  void open_first_window();
  std::uint32_t own_receives_wanted() const noexcept;
  void queue_pair_ready();
  Hello our_hello() const;
  void offer_mtu();
  void take_mtu_answer(std::uint8_t answer);
  void agree_on_mtu(std::uint8_t asked);
  void refuse_lone_mtu() const;
  QpTimeouts timeouts() const noexcept;
  void established();
  rdma_conn_param parameters(std::span<const std::byte> hello) const;
  ae::Duration time_left() const;

  // data (connection.cc)
  void on_first_message() noexcept;
  void after_input();
  ssize_t refuse_write();
  bool has_undelivered() const noexcept;
  bool has_left() noexcept;
  void retire_sends(std::uint32_t sequence) noexcept;
  void retire_failed(std::uint32_t sequence) noexcept;
  /// Sequence numbers wrap around: last_data_ is compared only while that request is in flight.
  void look_at_last_data() noexcept {
    data_under_way_ = data_under_way_ && static_cast<std::int32_t>(last_data_ - done_) > 0;
  }
  std::size_t room() const noexcept;
  std::size_t room_to_wait_for() const noexcept;
  void wait_for_memory(std::size_t size);
  bool secure_memory() noexcept;
  void renew_budget() noexcept;
  ssize_t look_for_bytes();
  std::size_t take_bytes(std::byte* into, std::size_t size);
  const Route& route() const noexcept;

  // in place (carrier_in_place.cc)
  /// Ends the use of what the last peek() showed.
  void end_view() noexcept {
    if (viewed_ || together_ != 1) forget_view();
  }
  void forget_view() noexcept;
  void release_kept() noexcept;
  void drop_kept() noexcept;
  void tell_references(std::error_code error) noexcept;

  // windows (carrier_windows.cc)
  void manage_windows();
  bool provide_window();
  void free_window(void* owner) noexcept;
  bool has_key_to_change() noexcept {
    if (key_to_change_) look_at_keys();
    return key_to_change_;
  }
  void look_at_keys() noexcept;
  void on_keys_changed(std::uint32_t sequence);
  bool keys_work();
  bool go_on_without_binding();
  Failure bind_failure(int err) const;

  // posting (connection.cc)
  struct ChainPlan {  // contents of a chain: key changes, control messages, one batch of bytes
    std::size_t keys_end = 0, control_end = 0, data_end = 0;
    std::size_t probe_end = 0;  // once this many are posted, one probes the peer's device; 0: none
    std::array<ReceiveWindow*, SendChain::kLimit> window{};   // whose key it changes
    std::array<std::uint32_t, SendChain::kLimit> bytes_of{};  // staged bytes in each request
    std::uint32_t bytes = 0;                                  // their sum
    bool copied = false;                                      // the last write is inline
    bool signal_last = false;
  };
  void post_chains();
  bool post_chain();
  bool keys_go_alone() const noexcept;
  void plan_keys(SendChain& chain, ChainPlan& plan);
  void post_keys();
  void plan_keys_alone(SendChain& chain, ChainPlan& plan);
  void plan_control(SendChain& chain, ChainPlan& plan);
  void plan_data(SendChain& chain, ChainPlan& plan);
  void plan_probe(SendChain& chain, ChainPlan& plan);
  void ask_later() noexcept;
  std::uint32_t plan_signals(SendChain& chain, const ChainPlan& plan);
  void take_back_control(const Stream& before, const ChainPlan& plan, std::size_t posted);
  void commit(ChainPlan& plan, std::size_t posted);
  bool on_key_refused(ReceiveWindow& window);

  // the end (carrier_close.cc)
  /// After a failure the peer is notified, but we wait no longer than this for its answer.
  static constexpr ae::Duration kFailurePatience = std::chrono::milliseconds(500);
  void move_phase(Phase next);
  /// Runs `body` on behalf of the loop. If it throws for lack of memory, this connection ends and
  /// the exception goes no further. `body` must not run a user's handler.
  template <class Body>
  void take(Body&& body) noexcept {
    try {
      body();
    } catch (const std::exception&) {
      end_with(out_of_memory());
    }
  }
  /// False if there is no memory for a timer.
  [[nodiscard]] bool set_deadline(ae::Duration delay, void (RdmaCarrier::*expired)()) noexcept;
  void clear_deadline() noexcept;
  void address_expired();
  void accept_expired();
  void linger_expired();
  void disconnect_expired();
  void handle(const CmEvent& event);
  void name_peer(Failure& failure) const noexcept;
  enum class Unread : bool { kKeep, kDrop };  // unread bytes: kept, or dropped
  void end_with(Failure failure, Unread unread = Unread::kKeep) noexcept;
  void clear_pace() noexcept;
  void peer_closed();
  void begin_disconnect(ae::Duration patience) noexcept;
  bool can_say_goodbye() const noexcept;
  /// The device has nothing more to report about the queue pair: destroying it loses no
  /// completions.
  bool quiet() const noexcept;
  void quiet_expired();
  void on_stream_over();
  void stream_over_expired();
  void on_silence() noexcept;
  void stop_queue_pair() noexcept;
  void ask_port() noexcept;
  void give_up_unread() noexcept;
  ae::Duration patience() const noexcept;
  /// Stops the queue pair and sends the disconnect request to the peer.
  void stop_and_disconnect() noexcept;
  void send_disconnect() noexcept;
  void begin_close() noexcept;
  void begin_abort() noexcept;
  void continue_close() noexcept;
  void tear_down() noexcept;
  void finish() noexcept;

  LoopState* state_;
  Settings settings_;
  Phase phase_ = Phase::kIdle;
  Role role_;
  AcceptOwner* listener_ = nullptr;  // null once it has handed this connection over

  // connecting
  std::string target_;
  std::unique_ptr<Resolution> resolution_;
  std::vector<SocketAddress> addresses_;
  std::size_t next_address_ = 0;
  ae::TimePoint connect_deadline_{};
  ae::TimePoint address_began_{}, address_deadline_{};  // of the address being tried
  ae::TimePoint close_deadline_{};
  std::vector<std::string> hosts_;  // names not yet resolved
  std::uint16_t port_ = 0;
  Failure last_failure_;   // of the last address tried
  ae::TimerId timer_ = 0;  // the time-out of this phase
  std::optional<ae::TimePoint> pace_at_;
  ae::TimerId pace_timer_ = 0;  // fires at pace_at_ to post again
  SocketAddress local_, peer_;
  std::string device_;   // device and port, for path(); kept after both are gone
  mutable Route route_;  // read back on demand
  bool iwarp_ = false;
  ibv_mtu mtu_{};       // agreed on by both ends; 0: that of rdma_cm
  ibv_mtu mtu_told_{};  // offered in our hello; 0: none

  bool tried_again_ = false;  // this address was retried after a refusal that may be temporary
  bool connect_under_way_ = false;  // rdma_connect() or rdma_accept() was called, no answer yet

  // Verbs objects, destroyed bottom to top: queue pair, completion queue lease, receives and
  // windows, domain, context, id.
  CmId id_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<Domain> domain_;
  std::shared_ptr<Domain> kept_;  // keeps memory of a view or reservation that outlives domain_
  std::unique_ptr<ReceiveQueue> receives_;
  // The windows of the stream, and two whose keys are being invalidated.
  std::array<ReceiveWindow, WindowLine::kSlots + 2> windows_;
  bool key_to_change_ = false;  // false: no window has a key to change, or a change in flight
  CqLease lease_;
  Pinned rings_;
  Qp qp_;

  Stream stream_;
  TxQueue tx_;
  SendBuffer send_buffer_;
  Block* control_ = nullptr;                // for control messages, if they do not fit inline
  std::unique_ptr<std::byte[]> left_over_;  // unread bytes, once the windows are gone
  std::uint32_t inline_limit_ = 0, pieces_limit_ = 1;
  std::vector<Sent> ring_;  // indexed by sequence modulo its size
  std::uint32_t posted_ = 0, done_ = 0, last_signaled_ = 0;
  ae::TimePoint ask_at_ = ae::TimePoint::max();  ///< when to request a completion for older sends
  std::uint32_t last_data_ = 0;  // sequence of the last request with the user's bytes
  bool data_under_way_ = false, wrote_ = false;  // it is in flight; one was ever posted
  bool sends_failed_ = false;                    // later requests are not carried out
  bool post_again_ = false;                      // the device's send queue was full
  bool short_of_room_ = false;     // the last write was limited by the length of send_buffer_
  bool starved_ = false;           // no memory to send from
  std::uint32_t starved_for_ = 0;  // bytes needed in one piece
  bool wants_memory_ = false;      ///< the last write took less than send_buffer_ allows
  bool delivering_ = false;        // the loop ends: delivery of all bytes must be proved
  bool waits_for_first_message_ = false;  // iWARP: the connecting side must send the first message
  bool proving_ = false;                  // waiting for the result of a bind, before establishment
  bool live_ = false;                     // the queue pair has been connected
  bool stopped_ = false;                  // and we put it into its error state
  bool last_receive_ = false;  // the last shared receive has come back (LAST_WQE_REACHED)
  bool waits_for_quiet_ = false;
  bool clean_end_ = false;     // everything was delivered, without an error
  bool path_failed_ = false;   // the peer seems to be unreachable
  bool stream_over_ = false;   // iWARP: the queue pair has ended, the reason is not yet known
  bool peer_gone_ = false;     // the peer is known to be gone, e.g. DISCONNECTED came
  bool stop_pending_ = false;  // disconnecting, queued in LoopState for stop_and_disconnect()
  bool cm_knows_ = false;      // rdma_cm reports it established; data may arrive before that
  Failure window_failure_;     // why no memory for another window could be had
  Failure pending_failure_;    // reported once the unread bytes have been read
  std::uint64_t read_turn_ = 0;
  std::size_t read_left_ = 0;
  std::size_t together_ = 1;  // unread bytes the read handler waits for
  std::size_t shown_ = 0;     // unread bytes that the last peek() showed
  bool viewed_ = false;       // the view may still be in use; its bytes are in windows_
};

}}}  // namespace conn::rdma
