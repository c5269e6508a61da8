// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// RdmaCarrier, the part of a connection that moves its bytes over RDMA: implements the functions
// that ConnectionCore, the part common to all transports, calls. The base class LinkedCarrier
// handles what rdma_cm, the device and the loop report (conn/rdma/linked_carrier.h).

#include <memory>
#include <utility>

#include "ae/abi.h"
#include "conn/rdma/facts.h"
#include "conn/rdma/linked_carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class RdmaCarrier final : public LinkedCarrier {
 public:
  /// Creates the RDMA part of a connection. `listener`: the listener that accepts the connection;
  /// null for an outgoing connection. Throws VerbsError if the machine has no RDMA.
  RdmaCarrier(const ConnectionType& type, LoopState& state,
              std::shared_ptr<const Settings> settings, AcceptOwner* listener = nullptr)
      : LinkedCarrier(type, state, std::move(settings),
                      listener == nullptr ? Role::kClient : Role::kServer, listener) {}

  /// Creates the queue pair and accepts a connection request. `request`: the rdma_cm id of the
  /// CONNECT_REQUEST event. `private_data`: the private data of the request. On failure it rejects
  /// the request with the text of the exception and throws VerbsError or std::bad_alloc; the caller
  /// must then close the connection.
  void accept(CmId request, std::span<const std::byte> private_data);

  const CarrierFacts& facts() const noexcept override { return facts_; }

 private:
  struct Attempt;

  // Overrides of Carrier, called by ConnectionCore, the part of a connection common to all
  // transports.
  void connect(const Endpoint& to) override;
  void connect_blocking(const Endpoint& to, ae::TimePoint deadline) override;
  ssize_t read(void* buffer, std::size_t size) override;
  ssize_t write(const void* buffer, std::size_t size) override;
  ssize_t writev(const iovec* vectors, int count) override;
  bool peeks_in_place() const noexcept override { return link_.settings().in_place; }
  ssize_t peek(std::size_t together, View& view) override;
  void peek_anything() noexcept override { reader_.want_anything(); }
  std::size_t consume(std::size_t size) noexcept override;
  bool reserves_in_place() const noexcept override { return true; }
  std::span<std::byte> reserve(std::size_t size) override;
  void commit(std::size_t size) noexcept override;
  bool sends_in_place(const Outgoing& bytes) const noexcept override;
  ssize_t send(const Outgoing& bytes) override;
  int shutdown() override;
  int shutdown_both() override;
  void close() noexcept override;
  bool flush(ae::TimePoint until) noexcept override;
  bool wait_for(ae::Mask direction, ae::TimePoint deadline) override;
  bool drain(ae::TimePoint until) noexcept override;
  ae::Duration linger() const noexcept override { return link_.settings().linger; }
  ae::Duration idle_timeout() const noexcept override { return link_.settings().idle_timeout; }
  ae::Duration end_linger() const noexcept override {
    return std::min(link_.settings().linger, link_.settings().end_linger);
  }
  const Failure& why_ended() const noexcept override {
    return pending_failure_ ? pending_failure_ : Carrier::why_ended();
  }
  void abandon() noexcept override;
  void take_secret(std::span<const std::byte> secret, bool peer_has_it) noexcept override {
    if (session() != nullptr)
      session()->take_secret(secret, peer_has_it, link_.stream.inbound().line().total());
  }
  bool can_move() const noexcept override { return session() != nullptr && !link_.stage.ended(); }
  bool leave(ae::EventLoop* to) override;
  bool join(ae::EventLoop& loop) override;
  void host_changed() noexcept override { link_.stream.outbound().set_connection(host().id()); }
  bool readable() const override {
    if (!reader_.has_view()) {
      if (link_.stream.inbound().has_unread()) return true;
      if (!link_.stream.peer_end().input_over() && !pending_failure_) return false;
    }
    return reader_.is_due(link_.stream) || pending_failure_;
  }
  // Returns false if the read handler must not be called in this iteration because the connection's
  // read budget is used up. (Handlers other than the read handler may have read from this
  // connection.)
  bool ready_to_read() override {
    return reader_.may_read(link_.state().iteration_number()) ||
           !link_.stream.inbound().has_unread();
  }
  std::size_t run_ready() override;
  bool writable() const override;

  /// Returns 1 if there are bytes that may be read in this iteration. Otherwise returns the result
  /// for read(): 0 at the end of the stream, or -1 with errno set.
  ssize_t look_for_bytes();
  ssize_t read_fully(void* buffer, std::size_t size);
  ssize_t refuse_write();

  const RdmaFacts facts_{link_, recovery_};
};

}}}  // namespace conn::rdma
