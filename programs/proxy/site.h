// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The relays of one loop.

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "conn/kit/proxy_header.h"
#include "conn/registry.h"
#include "programs/service/limited_log.h"
#include "relay.h"

namespace proxy {

struct Settings {
  conn::Endpoint connect;
  /// The version of the PROXY protocol by which the server is told each client's address; none: it
  /// is not told.
  std::optional<conn::ProxyVersion> proxy_protocol{};
  std::chrono::seconds idle_timeout{0};  ///< silence after which a relay is closed; 0: never
  bool verbose = false;                  ///< whether to log a line for each connection
  /// called on any loop's thread
  std::function<void(const std::string&)> log = [](const std::string&) {};
  /// Limits how many lines the failed relays of all loops log; sum_up() must be called regularly.
  mutable service::LimitedLog failures{"connections failed"};
};

/// Throws conn::Error if `settings` ask for a header that their server cannot be sent.
void check(const Settings& settings);

class Site final : private Relay::Owner {
 public:
  /// All three arguments are borrowed. All members must be called on the loop's thread.
  Site(ae::EventLoop& loop, const conn::Registry& registry, const Settings& settings);
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;
  ~Site();

  void accept(conn::ConnectionPtr client);
  const Counters& counters() const noexcept { return counters_; }
  std::size_t open() const noexcept { return relays_.size(); }
  /// Calls `empty` once there are no relays; no further clients may be accepted.
  void drain(std::function<void()> empty);

 private:
  void over(Relay& relay, std::string_view why) noexcept override;
  void log_end(const Relay& relay, std::string_view why);
  void tell_if_empty() noexcept;
  void look_for_idle();

  ae::EventLoop& loop_;
  const conn::Registry& registry_;
  const Settings& settings_;
  const std::string idle_text_;  ///< formatted in advance: ending a relay must not need memory
  Counters counters_;
  std::list<std::unique_ptr<Relay>> relays_;
  ae::TimerId idle_timer_ = 0;
  std::function<void()> empty_;
};

}  // namespace proxy
