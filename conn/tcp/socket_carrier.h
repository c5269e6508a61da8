// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Carries a connection over a stream socket, shared by tcp, unix and vsock. The connection is ready
// when the descriptor is; the loop watches the descriptor only while a handler needs it.

#include <memory>

#include "ae/abi.h"
#include "conn/spi/carrier.h"
#include "conn/tcp/dial.h"
#include "conn/tcp/linger.h"
#include "conn/tcp/settings.h"
#include "conn/tcp/socket.h"
#include "conn/tcp/socket_events.h"
#include "conn/tcp/zero_copy_sender.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class SocketType;

class SocketCarrier final : public Carrier {
 public:
  SocketCarrier(const SocketType& type, std::shared_ptr<const Settings> settings);
  ~SocketCarrier() override {
    if (aborts()) close_socket(true);
  }

  /// Takes over an accepted socket; the connection is then in state kConnected. Makes no system
  /// call. Throws std::bad_alloc, but only if the client is not the peer.
  void adopt(Accepted socket, Quota::Place place = {});

  int fd() const noexcept override { return linger_ ? linger_->fd() : fd_.get(); }
  std::string local_address() const override;
  std::string peer_address() const override;
  SocketAddress local_sockaddr() const noexcept override;
  SocketAddress peer_sockaddr() const noexcept override;
  std::optional<bool> is_local() const override;
  std::optional<PeerCredentials> peer_credentials() const override;
  std::vector<std::pair<std::string, std::string>> info() const override;
  void connect(const Endpoint& to) override;
  void connect_blocking(const Endpoint& to, ae::TimePoint deadline) override;
  ssize_t read(void* buffer, std::size_t size) override;
  ssize_t readv(const iovec* vectors, int count) override;
  ssize_t write(const void* buffer, std::size_t size) override;
  ssize_t writev(const iovec* vectors, int count) override;
  bool sends_in_place(const Outgoing& bytes) const noexcept override;
  ssize_t send(const Outgoing& bytes) override;
  void interest_changed() override;
  int shutdown() override;
  int shutdown_both() override;
  void close() noexcept override;
  bool wait_for(ae::Mask direction, ae::TimePoint deadline) override;
  void expect_no_more() noexcept override { peer_done_ = true; }
  bool drain(ae::TimePoint until) noexcept override;
  ae::Duration linger() const noexcept override { return settings_->linger; }
  ae::Duration end_linger() const noexcept override;
  ae::Duration idle_timeout() const noexcept override { return settings_->idle_timeout; }
  void abandon() noexcept override;
  bool leave(ae::EventLoop* to) override;
  int release_descriptor() noexcept override;

 private:
  /// Receives those events of the socket that the loop's file events do not report: the peer's end
  /// for a close handler, and zero-copy completions. Allocated on demand.
  struct Side final : SocketEvents::Item {
    explicit Side(SocketCarrier& its) : carrier(its) {}
    void on_socket_event(bool peer_gone, bool error) noexcept override;
    SocketCarrier& carrier;
  };

  void dialed(Dialed result);
  void readable();
  void writable();
  /// Whether the socket is plain: its events only require a handler to run, because no memory is
  /// lent to the kernel and no failure has to be announced.
  bool is_plain() const noexcept { return !lending_ && state() != State::kError; }
  void run_if_ready(short event);
  bool is_ready(short event) noexcept;
  void watch(ae::Mask wanted);
  void stop_watching();
  void announce_error();
  void tell_error();
  ssize_t failed(int err, const char* what) noexcept;
  std::string socket_peer_address() const;
  bool is_unix() const noexcept { return peer_.family() == AF_UNIX; }
  bool is_vsock() const noexcept { return peer_.family() == AF_VSOCK; }
  /// Whether this is a TCP socket. What other sockets have accepted is delivered by the kernel.
  bool is_inet() const noexcept { return !is_unix() && !is_vsock(); }
  int shut_down(int how);
  ssize_t receive_without_descriptors(const iovec* vectors, int count);
  ssize_t received_nothing(ssize_t n);
  ssize_t sent_nothing();

  void watch_aside();
  // Functions for zero-copy sending
  bool take_completions() noexcept;
  void tell_done() noexcept;
  bool is_lent() noexcept;
  void close_socket(bool reset = false) noexcept;

  std::shared_ptr<const Settings> settings_;
  Fd fd_;
  CompactAddress peer_;  // for unix and vsock only the family; the name is queried on demand
  // Address of the client whose proxy is the peer; null: the peer is the client itself.
  std::unique_ptr<const CompactAddress> client_;
  ae::Mask watched_ = ae::kNone;
  bool read_ended_ = false;  // whether the peer's end of stream has been read from the socket
  // whether shutdown() or shutdown_both() was called, so that no write may follow
  bool write_ended_ = false;
  // whether expect_no_more() was called: the protocol above knows that the peer sends no more
  bool peer_done_ = false;
  ae::TimerId error_timer_ = 0;
  std::unique_ptr<Side> side_;
  // object for zero-copy sending; null before the first zero-copy send()
  std::unique_ptr<ZeroCopySender> lending_;
  std::unique_ptr<Dial> dial_;  // the attempt to connect; null except while connecting
  // delivers the remaining output after close(); null at other times
  std::unique_ptr<Linger> linger_;
};

}}}  // namespace conn::tcp
