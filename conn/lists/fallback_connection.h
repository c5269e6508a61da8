// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A connection to a place that several candidates lead to. Once one of them is ready, all
// operations are passed on to it.

#include <memory>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/connection.h"
#include "conn/fallback.h"
#include "conn/lists/dial.h"

namespace conn { inline namespace AECONN_ABI {

class FallbackType;

class FallbackConnection final : public Connection {
 public:
  FallbackConnection(const FallbackType& type, ae::EventLoop& loop);
  ~FallbackConnection() override;

  /// The lower connection, which carries the bytes; null until it is known.
  const Connection* carrier() const noexcept { return below_.get(); }
  /// The candidates preferred to the carrier, and why they were not taken; all, if none was taken.
  const std::vector<Skipped>& not_taken() const noexcept { return skipped_; }

  int fd() const noexcept override { return below_ ? below_->fd() : -1; }
  std::string local_address() const override { return below_ ? below_->local_address() : ""; }
  std::string peer_address() const override { return below_ ? below_->peer_address() : ""; }
  std::optional<bool> is_local() const override;
  /// "carrier", "not-rdma" for each candidate not taken, and the entries of the carrier.
  std::vector<std::pair<std::string, std::string>> info() const override;
  std::string peer_certificate() const override;
  std::string peer_user() const override;
  const Failure& why_ended() const noexcept override;

 protected:
  /// The path of the carrier, followed by the candidates not taken and the reasons.
  std::string do_path() const override;
  void do_connect(const Endpoint& to) override;
  void do_connect_blocking(const Endpoint& to, ae::TimePoint deadline) override;
  ssize_t do_read(void* buffer, std::size_t size) override;
  ssize_t do_readv(const iovec* vectors, int count) override;
  ssize_t do_writev(const iovec* vectors, int count) override;
  bool peeks_in_place() const noexcept override;
  ssize_t do_peek(std::size_t together, View& view) override;
  void do_peek_anything() noexcept override { rearm_ = true; }
  std::size_t do_consume(std::size_t size) noexcept override;
  bool reserves_in_place() const noexcept override;
  std::span<std::byte> do_reserve(std::size_t size) override;
  void do_commit(std::size_t size) noexcept override;
  bool sends_in_place(const Outgoing&) const noexcept override { return false; }
  void handlers_changed() override;
  int do_shutdown() override;
  int do_shutdown_both() override;
  bool do_flush(ae::TimePoint until) noexcept override;
  ae::Duration linger() const noexcept override;
  ae::Duration end_linger() const noexcept override;
  void do_close() noexcept override;
  bool wait_for(ae::Mask direction, ae::TimePoint deadline) override;
  void do_expect_no_more() noexcept override;
  void do_abandon() noexcept override;
  bool do_rebind(ae::EventLoop* to) override;
  bool do_join(ae::EventLoop& loop) override;

 private:
  const FallbackType& fallback_type() const noexcept;
  void dialled(ConnectionPtr winner);
  void take(ConnectionPtr winner);
  void fail_later(Failure failure);
  void follow();
  void readable();
  void writable();
  void announce_error();
  void tell_error();
  void below_gone();
  template <class Result>
  Result followed(Result result);

  std::unique_ptr<Dial> dial_;  // while it connects
  ConnectionPtr below_;
  std::string to_;  // without options
  std::vector<Skipped> skipped_;
  ae::TimerId timer_ = 0;         // set while a failure is to be reported
  ae::Mask watched_ = ae::kNone;  // events requested from the lower connection
  Barrier watched_barrier_ = Barrier::kNo;
  bool watches_close_ = false;
  bool below_gone_ = false;  // its end is known: only a failure is still reported
  bool rearm_ = false;       // the lower read handler must run again for any available data
};

}}  // namespace conn
