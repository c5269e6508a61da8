// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// SocketCarrier moves the bytes of a connection over a stream socket; shared by tcp, unix and
// vsock. The connection is ready when the descriptor is; the loop watches it only while a handler
// needs it.
//
// Its parts: ConnectedSocket has the descriptor and returns the facts, FileEvents is what the loop
// watches, FailureTimer runs the handlers after a failure, Dial exists while the connection is set
// up, and SocketAside for what few connections need.

#include <memory>

#include "ae/abi.h"
#include "conn/spi/carrier.h"
#include "conn/tcp/connected_socket.h"
#include "conn/tcp/dial.h"
#include "conn/tcp/failure_timer.h"
#include "conn/tcp/file_events.h"
#include "conn/tcp/settings.h"
#include "conn/tcp/socket.h"
#include "conn/tcp/socket_aside.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class SocketType;

class SocketCarrier final : public Carrier {
 public:
  SocketCarrier(const SocketType& type, std::shared_ptr<const Settings> settings);
  ~SocketCarrier() override {
    if (aside_) aside_->end_linger();
    if (aborts()) close_socket(true);
  }

  /// Takes over an accepted socket; the connection is then in state kConnected. Makes no system
  /// call. Throws std::bad_alloc, but only if the client is not the peer.
  void adopt(Accepted socket, Quota::Place place = {});

  /// Marks the connection as failed and returns -1 with `err` in errno; `what` begins the failure's
  /// text, before the peer's address.
  ssize_t failed(int err, const char* what) noexcept;

  const CarrierFacts& facts() const noexcept override { return socket_; }
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
  ae::Duration linger() const noexcept override { return socket_.settings->linger; }
  ae::Duration end_linger() const noexcept override;
  ae::Duration idle_timeout() const noexcept override { return socket_.settings->idle_timeout; }
  void abandon() noexcept override;
  bool leave(ae::EventLoop* to) override;
  int release_descriptor() noexcept override;

 private:
  void dialed(Dialed result);
  void readable();
  void writable();
  /// Whether the socket is plain: its events only require a handler to run, because no memory is
  /// lent to the kernel and no failure has to be announced.
  bool is_plain() const noexcept { return !lends_ && state() != State::kError; }
  void run_if_ready(short event);
  void watch_aside();
  void stop_watching();
  void announce_error();
  int shut_down(int how);
  ssize_t receive_without_descriptors(const iovec* vectors, int count);
  ssize_t received_nothing(ssize_t n);
  ssize_t sent_nothing();
  void close_socket(bool reset = false) noexcept;

  ConnectedSocket socket_;
  FileEvents events_;
  bool read_ended_ = false;  // true if the peer's end of stream has been read from the socket
  // True if shutdown() or shutdown_both() was called, so that no write may follow.
  bool write_ended_ = false;
  // True if expect_no_more() was called: the protocol above knows that the peer sends no more.
  bool peer_done_ = false;
  bool lends_ = false;  // true if send() has tried to send without a copy
  FailureTimer failure_timer_;
  std::unique_ptr<SocketAside> aside_;  // null until it is first needed
  std::unique_ptr<Dial> dial_;          // the attempt to connect; null except while connecting
};

}}}  // namespace conn::tcp
