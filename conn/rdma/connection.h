#pragma once
// One RDMA connection: carries out what Stream decides, over a queue pair, behind conn::Connection.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "conn/queued_connection.h"
#include "conn/rdma/loop_state.h"
#include "conn/rdma/phase.h"
#include "conn/rdma/send_chain.h"
#include "conn/rdma/staging.h"
#include "conn/rdma/stream.h"
#include "conn/resolver.h"

namespace conn::rdma {

class ListenerCore;

class RdmaConnection final : public QueuedConnection, private QueuePairUser, private CmUser {
 public:
  /// To connect with. Throws VerbsError where there is no RDMA.
  RdmaConnection(const ConnectionType& type, LoopState& state, const Settings& defaults);
  /// From a CONNECT_REQUEST, whose id it takes. Call accept() next.
  RdmaConnection(const ConnectionType& type, LoopState& state, const Settings& settings, CmId id,
                 ListenerCore& listener);
  ~RdmaConnection() override;

  /// Makes the queue pair and answers the request. Throws VerbsError; the connection is then to be
  /// closed.
  void accept(std::span<const std::byte> private_data);
  /// The listener has handed this connection over, or is gone.
  void leave_listener() noexcept { listener_ = nullptr; }

  std::string local_address() const override { return local_.to_string(); }
  std::string peer_address() const override { return peer_.to_string(); }
  std::optional<bool> is_local() const override;
  std::vector<std::pair<std::string, std::string>> info() const override;

  // --- for LoopState ---
  /// Posts what is due, in one chain.
  void post_due() noexcept;
  void on_tick(ae::TimePoint now, bool loop_was_stopped) noexcept;
  /// Takes the queue pair down; called outside of completion handling.
  void reap();
  bool flush_queued = false, reap_queued = false;  ///< stands in LoopState's lists
  ae::Duration keepalive() const noexcept { return settings_.keepalive; }
  /// When post_due() is to be called again although nothing happened.
  std::optional<ae::TimePoint> pace_at() const noexcept { return pace_at_; }

 private:
  friend class ListenerCore;
  struct Sent {               // one work request on the send queue
    std::uint32_t bytes = 0;  // staged bytes it holds until it completes
  };

  // Connection
  void do_connect(const Endpoint& to) override;
  void do_connect_blocking(const Endpoint& to, ae::TimePoint deadline) override;
  ssize_t do_read(void* buffer, std::size_t size) override;
  ssize_t do_writev(const iovec* vectors, int count) override;
  int do_shutdown() override;
  void do_close() noexcept override;
  void wait_for(ae::Mask direction, ae::TimePoint deadline) override;
  void do_abandon() noexcept override;
  bool readable() const override;
  bool writable() const override;

  // CmUser, QueuePairUser
  void on_cm_event(const CmEvent& event) override;
  void on_sends_done(std::uint32_t sequence) override;
  void on_immediate(std::uint32_t length) override;
  void on_message(std::span<const std::byte> bytes) override;
  void on_work_failed(ibv_wc_status status, bool was_send) override;
  void on_device_event(const std::string& what) override;
  void on_communication_established() override;
  void on_port_error(int port, const std::string& what) override;
  void on_address_change(const std::vector<SocketAddress>& present) override;
  ReceiveQueue* own_receives() noexcept override { return receives_.get(); }

  // set-up (connection_setup.cc)
  bool begin_connect(const Endpoint& to, ae::Duration limit);
  void look_up_next();
  void keep(Resolved resolved);
  void try_next_address();
  void try_address(const SocketAddress& address);
  void on_address_failed(Failure why);
  void on_set_up_event(const CmEvent& event);
  void request_connection();
  void finish_request(const CmEvent& event);
  void make_queue_pair();
  void established();
  rdma_conn_param parameters(std::span<const std::byte> hello) const;
  ae::Duration time_left() const;

  // data (connection.cc)
  void after_input();
  ssize_t refuse_write();
  void manage_windows();
  void free_window(void* owner) noexcept;
  std::size_t room() const noexcept;

  // posting (connection.cc)
  struct ChainPlan {  // what a chain holds: keys to bind, control messages, one batch of bytes
    std::size_t binds_end = 0, control_end = 0, data_end = 0;
    std::array<std::uint32_t, SendChain::kLimit> piece{};  // staged bytes in each request
    std::uint32_t bytes = 0;                               // their sum
    bool signal_last = false;
  };
  void post_chains();
  bool post_chain();
  bool has_key_to_bind() const noexcept;
  void plan_binds(SendChain& chain, ChainPlan& plan);
  void plan_control(SendChain& chain, ChainPlan& plan);
  void plan_data(SendChain& chain, ChainPlan& plan);
  void plan_probe(SendChain& chain, ChainPlan& plan);
  std::uint32_t plan_signals(SendChain& chain, const ChainPlan& plan);
  void take_back_control(const Stream& before, const ChainPlan& plan, std::size_t posted);
  void commit(ChainPlan& plan, std::size_t posted);

  // the end (connection_close.cc)
  void move_phase(Phase next);
  /// What the loop brings in: where there is no memory to take it this connection ends, and nobody
  /// else notices. No handler of a user runs in `body`.
  template <class Body>
  void take(Body&& body) noexcept {
    try {
      body();
    } catch (const std::exception&) {
      end_with(out_of_memory());
    }
  }
  /// False if there is no memory to wait with.
  [[nodiscard]] bool set_deadline(ae::Duration delay, void (RdmaConnection::*expired)()) noexcept;
  void clear_deadline() noexcept;
  void address_expired();
  void accept_expired();
  void linger_expired();
  void disconnect_expired();
  void handle(const CmEvent& event);
  void name_peer(Failure& failure) const noexcept;
  enum class Unread : bool { kKeep, kDrop };  // what arrived before: still to be read, or not
  void end_with(Failure failure, Unread unread = Unread::kKeep) noexcept;
  void clear_pace() noexcept;
  void peer_closed();
  void begin_disconnect(ae::Duration patience) noexcept;
  bool can_say_goodbye() const noexcept;
  /// Stops the queue pair and tells the peer.
  void part() noexcept;
  void say_goodbye() noexcept;
  void continue_close() noexcept;
  void tear_down() noexcept;
  void die() noexcept;

  LoopState* state_;
  Settings settings_;
  Phase phase_ = Phase::kIdle;
  Role role_;
  ListenerCore* listener_ = nullptr;  // until it has handed this connection over

  // connecting
  std::string target_;
  std::unique_ptr<Resolution> resolution_;
  std::vector<SocketAddress> addresses_;
  std::size_t next_address_ = 0;
  ae::TimePoint connect_deadline_{};
  ae::TimePoint address_deadline_{};  // of the address that is being tried
  ae::TimePoint close_deadline_{};
  std::vector<std::string> hosts_;  // still to be looked up
  std::uint16_t port_ = 0;
  Failure last_failure_;   // of the address tried last
  ae::TimerId timer_ = 0;  // the deadline of this phase
  std::optional<ae::TimePoint> pace_at_;
  ae::TimerId pace_timer_ = 0;  // when a peer that cannot be asked may get one more message
  SocketAddress local_, peer_;

  // Verbs objects, destroyed bottom to top: queue pair, room in the completion queue, receives and
  // windows, domain, context, id.
  CmId id_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<Domain> domain_;
  std::unique_ptr<ReceiveQueue> receives_;
  std::vector<std::unique_ptr<ReceiveWindow>> windows_;
  CqLease lease_;
  Qp qp_;

  Stream stream_;
  TxQueue tx_;
  RegisteredMemory control_;  // of control messages, where none fits inline
  std::uint32_t inline_limit_ = 0;
  std::vector<Sent> ring_;  // by sequence modulo its size
  std::uint32_t posted_ = 0, done_ = 0, last_signaled_ = 0;
  bool post_again_ = false;  // the device's send queue was full
  bool binding_ = false;     // a bind was posted and has not completed
  bool starved_ = false;     // no staging memory until some of ours comes back
  bool peer_gone_ = false;   // DISCONNECTED came
  bool unparted_ = false;    // disconnecting, and in LoopState's list to part()
  bool cm_knows_ = false;    // that the connection stands; the peer's first message may be faster
  Failure window_failure_;   // why there was no memory for another window
  Failure pending_failure_;  // to report once what arrived has been read
  std::uint64_t read_turn_ = 0;
  std::size_t read_left_ = 0;
};

}  // namespace conn::rdma
