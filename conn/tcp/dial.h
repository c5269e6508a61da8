// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Makes one outgoing connection: resolves the host, then tries every address in turn until one
// answers or the deadline passes.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/kit/address_choice.h"
#include "conn/kit/resolver.h"
#include "conn/tcp/settings.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

struct Dialed {
  Fd fd;  ///< the connected socket; empty after a failure
  SocketAddress peer;
  /// Why connecting to the address or host tried last has failed; the text names it.
  Failure failure;
  /// This connection's slot in the count of connections to the peer's address; empty if such
  /// connections are not counted.
  Quota::Place place;
};

class Dial {
 public:
  /// `done` is called once, by the loop, never before start() returns. It may destroy the Dial.
  /// Destroying the Dial earlier cancels the connect.
  Dial(ae::EventLoop& loop, std::shared_ptr<const Settings> settings, AddressBook& book,
       const Endpoint& to, std::function<void(Dialed)> done);
  ~Dial();
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;
  void start();

  /// Connects like a Dial, but blocks until the result is known, at most until `deadline` or until
  /// option connect-timeout has passed.
  static Dialed wait(const Settings& settings, AddressBook& book, const Endpoint& to,
                     ae::TimePoint deadline);

 private:
  template <class Step>
  void take(Step step);
  template <class Step>
  ae::TimerId after(ae::Duration delay, ae::TimerId& timer, Step step);
  void next_host();
  void look_up();
  void resolved(Resolved answer);
  void keep(std::vector<SocketAddress> found) noexcept;
  void next_address();
  void try_address();
  void watch_attempt();
  void writable();
  void retry_later();
  void attempt_failed(int err);
  void attempt_failed(Failure why);
  void out_of_time();
  void stop_watching();
  void connected();
  ae::Duration share_of_time() const;

  ae::EventLoop& loop_;
  std::shared_ptr<const Settings> settings_;
  AddressBook& book_;
  Endpoint to_;
  std::function<void(Dialed)> done_;
  // result of the attempt once it is known; take() then passes it to `done_`
  std::optional<Dialed> over_;
  ae::TimePoint deadline_;

  std::size_t host_ = 0;  // index in to_.hosts of the next host to resolve
  std::unique_ptr<Resolution> lookup_;
  // Addresses of the host resolved last; with option spread, the addresses of all hosts.
  std::vector<SocketAddress> addresses_;
  std::size_t address_ = 0;  // index in addresses_ of the address that is being tried now
  Quota::Place place_;       // counts the current attempt among the connections to its address
  ae::TimePoint attempt_began_{};  // time at which the current attempt began
  Fd fd_;  // socket of the attempt; the loop watches for it to become writable, that is, connected
  Failure last_failure_;
  ae::Duration retry_delay_{0};
  ae::TimerId deadline_timer_ = 0, attempt_timer_ = 0, retry_timer_ = 0;
};

}}}  // namespace conn::tcp
