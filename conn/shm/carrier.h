// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Carries a connection over the memory that two processes share. Over the Unix socket they send
// each other bells: bytes that wake the other. When the peer's end of the socket is closed, the
// peer is gone.

#include <memory>

#include "ae/abi.h"
#include "conn/shm/destination.h"
#include "conn/shm/hello.h"
#include "conn/shm/loop_state.h"
#include "conn/shm/memory.h"
#include "conn/shm/settings.h"
#include "conn/spi/queued_carrier.h"
#include "conn/tcp/dial.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

class ShmType;

class ShmCarrier final : public QueuedCarrier, private HotItem {
 public:
  ShmCarrier(const ShmType& type, LoopState& shared, SettingsPtr settings);
  ~ShmCarrier() override { abandon(); }

  /// Takes over the socket and the memories of a client whose hello was good. The connection is
  /// then in state kConnected. Throws std::bad_alloc.
  void adopt(Fd socket, ChannelPtr channel, Quota::Place place);

  std::string local_address() const override;
  std::string peer_address() const override;
  SocketAddress local_sockaddr() const noexcept override;
  SocketAddress peer_sockaddr() const noexcept override;
  std::optional<bool> is_local() const override { return true; }
  std::optional<PeerCredentials> peer_credentials() const override;
  ae::Duration idle_timeout() const noexcept override { return settings_->socket->idle_timeout; }
  std::string path() const override;
  std::vector<std::pair<std::string, std::string>> info() const override;
  void connect(const Endpoint& to) override;
  void connect_blocking(const Endpoint& to, ae::TimePoint deadline) override;
  ssize_t read(void* buffer, std::size_t size) override;
  ssize_t writev(const iovec* vectors, int count) override;
  void interest_changed() override;
  int shutdown() override;
  int shutdown_both() override;
  void close() noexcept override;
  void abandon() noexcept override;
  bool wait_for(ae::Mask direction, ae::TimePoint deadline) override;
  bool leave(ae::EventLoop* to) override;
  bool join(ae::EventLoop& loop) override;

 private:
  const ShmType& shm_type() const noexcept;
  // Connecting
  void looked_up(const Endpoint& to, Destination found, Failure why);
  void dial(const Endpoint& to);
  void limit_time();
  void dialed(tcp::Dialed result);
  bool greet(tcp::Dialed result);
  void take_answer();
  void refused(const Answer& answer);
  void not_connected(Failure why);
  void not_connected(int err, std::string_view what) noexcept;
  Failure failure(int err, std::string_view before, std::string_view after = {},
                  std::string_view more = {}) const noexcept;
  void established();
  // Events
  bool is_open() const noexcept {
    return state() == State::kConnected || state() == State::kClosed;
  }
  bool readable() const override;
  bool writable() const override;
  std::size_t run_ready() override;
  void watch();
  void stop_watching() noexcept;
  void on_socket();
  void take_bells() noexcept;
  void ring() noexcept;
  bool look() noexcept;
  bool look_now() noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;
  bool wish(bool reading, bool writing) noexcept;
  void unwish() noexcept;
  ssize_t refuse(int error) noexcept;
  ssize_t refuse_write() noexcept;
  void check_rules() noexcept;
  void end() noexcept;

  LoopState* shared_;  // null after abandon(), and while moving to another loop
  SettingsPtr settings_;
  Fd socket_;
  ChannelPtr channel_;  // null until the client has sent its hello
  std::uint64_t bells_sent_ = 0, bells_had_ = 0;
  std::uint64_t turn_ = 0;          // number of the iteration that budget_ belongs to
  std::size_t budget_ = 0;          // bytes that read() may still return in that iteration
  bool watched_ = false;            // whether the loop watches the socket
  bool socket_ended_ = false;       // whether the peer's socket is closed
  bool read_ended_ = false;         // whether read() has returned 0
  bool write_ended_ = false;        // whether shutdown() or shutdown_both() was called
  bool bell_failed_ = false;        // whether the kernel had no memory for a bell
  bool sends_descriptors_ = false;  // whether descriptors came among the peer's bells
  // While connecting
  std::unique_ptr<DestinationLookup> lookup_;
  std::unique_ptr<const Destination> destination_;  // null without option shm-path
  std::unique_ptr<tcp::Dial> dial_;
  struct Awaited {
    Receipt answer;
    Fd server_memory;
  };
  std::unique_ptr<Awaited> awaited_;
  ae::TimePoint deadline_{};
  ae::TimerId timer_ = 0;
};

}}}  // namespace conn::shm
