// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ShmCarrier: the part of a shm connection that moves its bytes, over memory of two processes.
//
// Its parts: Setup exists while a client connects. Link has the memory and the socket, and returns
// the connection's facts. LoopState, one for each loop, looks in the memory for changes by the
// peer. ShmCarrier decides which handlers are due, and acts on such changes and on the peer's bells
// (bytes in the socket that wake this process).

#include <memory>

#include "ae/abi.h"
#include "conn/shm/link.h"
#include "conn/shm/loop_state.h"
#include "conn/shm/settings.h"
#include "conn/shm/setup.h"
#include "conn/spi/queued_carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

class ShmType;

class ShmCarrier final : public QueuedCarrier, private HotItem {
 public:
  ShmCarrier(const ShmType& type, LoopState& shared, SettingsPtr settings);
  ~ShmCarrier() override { abandon(); }

  /// Takes over the socket and the memory that a set-up has made. The connection is then in state
  /// kConnected. Throws std::bad_alloc.
  void adopt(Made made);

  const CarrierFacts& facts() const noexcept override { return link_; }
  ae::Duration idle_timeout() const noexcept override { return settings_->socket->idle_timeout; }
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
  void set_up(Made made);
  bool is_open() const noexcept {
    return state() == State::kConnected || state() == State::kClosed;
  }
  bool readable() const override { return !inherited() && link_.readable(); }
  bool writable() const override { return write_ended_ || (!inherited() && link_.writable()); }
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
  ssize_t refuse_write() noexcept;
  void check_rules() noexcept;
  void fail_with(int err, std::string_view before, std::string_view after = {},
                 std::string_view more = {}) noexcept;

  LoopState* shared_;  // state of the loop; null after abandon() and while moving to another loop
  SettingsPtr settings_;
  Link link_;
  std::unique_ptr<Setup> setup_;  // null except while connecting
  std::uint64_t iteration_ = 0;   // loop iteration for which budget_ holds
  std::size_t budget_ = 0;        // bytes that read() may still return in this loop iteration
  bool watched_ = false;          // true if the loop watches the socket
  bool read_ended_ = false;       // true if read() has returned 0
  bool write_ended_ = false;      // true if shutdown() or shutdown_both() was called
};

}}}  // namespace conn::shm
