// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ListCarrier: the Carrier of a connection to a URL with a list of schemes, until one of the
// schemes is ready. Once one of them is ready, the connection continues with the Carrier of that
// candidate, and this object is destroyed.

#include <memory>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/connection.h"
#include "conn/fallback.h"
#include "conn/lists/dial.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI {

class FallbackType;

/// The Carrier of a connection to a list of schemes before it is established. Carries no bytes:
/// reads and writes are refused.
class ListCarrier final : public Carrier {
 public:
  explicit ListCarrier(const FallbackType& type);
  ~ListCarrier() override;

  void connect(const Endpoint& to) override;
  void connect_blocking(const Endpoint& to, ae::TimePoint deadline) override;
  ssize_t read(void*, std::size_t) override { return refused(); }
  ssize_t writev(const iovec*, int) override { return refused(); }
  void interest_changed() override {}
  int shutdown() override { return static_cast<int>(refused()); }
  void close() noexcept override;
  void abandon() noexcept override;
  bool wait_for(ae::Mask, ae::TimePoint) override { return true; }
  std::string local_address() const override { return {}; }
  std::string peer_address() const override { return {}; }
  std::optional<bool> is_local() const override { return std::nullopt; }
  /// Returns, once all candidates have failed, one fact for each: named "not-rdma" or similar, with
  /// the reason as its value.
  std::vector<std::pair<std::string, std::string>> info() const override { return reasons(); }

 private:
  static ssize_t refused() noexcept;
  const FallbackType& list() const noexcept;
  void dialled(ConnectionPtr winner);
  void hand_over(ConnectionPtr winner);
  std::vector<std::pair<std::string, std::string>> reasons() const;

  std::unique_ptr<Dial> dial_;  // connects to the candidates; null unless connect() is in progress
  std::string to_;              // the URL to connect to, without options
  // The candidates that were not used: those before the one that is ready, or all of them after a
  // failure.
  std::vector<Skipped> skipped_;
};

}}  // namespace conn
