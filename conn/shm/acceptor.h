// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The listening side of shm: the Unix socket accepts (conn/tcp), then every client has to send a
// good hello before the accept handler gets its connection.

#include <deque>
#include <list>
#include <memory>
#include <optional>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/core/handler_slot.h"
#include "conn/core/connection_set.h"
#include "conn/core/pending_connection.h"
#include "conn/core/refusals.h"
#include "conn/kit/quota.h"
#include "conn/kit/ready_list.h"
#include "conn/shm/destination.h"
#include "conn/shm/hello.h"
#include "conn/shm/loop_state.h"
#include "conn/shm/settings.h"
#include "conn/shm/setup.h"
#include "conn/tcp/socket_receiver.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

class ShmType;

/// What a listener or a loop acceptor does. A handler of it may destroy the listener: this object
/// then lives on until the handler has returned.
class Acceptor final : public ae::Deferred, public ReadyItem, private LoopEndWatcher {
 public:
  Acceptor(const ShmType& type, LoopState& shared, SettingsPtr settings, Served served,
           AcceptHandler accepted);
  ~Acceptor() override { stop(); }
  /// Ends everything that is not established yet; no handler runs afterwards.
  void stop() noexcept;
  /// Limits the number of connections, for a listener that serves one loop.
  void limit(std::uint64_t most) { quota_.emplace(most); }

  void arrive(PendingConnectionPtr arrival);
  PendingConnectionPtr give_back() noexcept;
  void pause() { paused_ = true; }
  void resume();
  void on_refused(const RefusedHandler& handler) { refused_.set(handler); }
  void refused(const Failure& why) { tell(why); }
  void count_rejected() noexcept { ++counters_.refused; }
  const ShmType& type() const noexcept { return type_; }
  ae::EventLoop* loop() const noexcept { return shared_ == nullptr ? nullptr : &shared_->loop(); }

 private:
  /// A client whose hello is not complete.
  struct Greeting {
    Made made;
    ae::TimePoint began;
    bool watched = false;
    ae::TimerId timer = 0;
    Receipt hello = {};
    ae::MadeHere made_here = {};
  };
  using Greetings = std::list<Greeting>;
  struct Then {  // its destructor runs even if a handler throws
    Acceptor& acceptor;
    ~Then() { acceptor.go_on(); }
  };

  std::size_t run_ready() override;
  void on_loop_end() noexcept override { stop(); }
  bool busy() const noexcept { return paused_ || accepted_.running() || refused_.running(); }
  void begin(PendingConnectionPtr arrival);
  void receive(Greetings::iterator client);
  void watch(Greetings::iterator client);
  Answer welcome(Greeting& client);
  void forget(Greeting& client) noexcept;
  void evict();
  void leave_to_parent(Greetings::iterator client) noexcept;
  void refuse(Greetings::iterator client, const Answer& answer);
  void tell(const Failure& why);
  void go_on();

  const ShmType& type_;
  LoopState* shared_;  // null once stopped
  LoopCounters& counters_;
  const SettingsPtr settings_;
  const Served served_;
  std::optional<Quota> quota_;
  ae::HandlerSlot<void(ConnectionPtr)> accepted_;
  Refusals refused_;
  std::deque<PendingConnectionPtr> arrivals_;
  Greetings greetings_;             // oldest first
  std::deque<ConnectionPtr> done_;  // established connections that wait for the accept handler
  bool paused_ = false;
};

/// Destroys an acceptor once none of its handlers is on the stack.
struct StopAcceptor {
  void operator()(Acceptor* acceptor) const noexcept;
};
using AcceptorPtr = std::unique_ptr<Acceptor, StopAcceptor>;

/// A listener: with a port of its own, or as the acceptor of one of several loops.
class ShmListener final : public LoopAcceptor {
 public:
  explicit ShmListener(AcceptorPtr acceptor, PortListenerPtr port = nullptr)
      : acceptor_(std::move(acceptor)), port_(std::move(port)) {}

  const ConnectionType& type() const noexcept override;
  std::vector<Endpoint> endpoints() const override;
  void pause() override;
  void resume() override;
  void on_refused(const RefusedHandler& handler) override { acceptor_->on_refused(handler); }
  void arrive(PendingConnectionPtr arrival) override { acceptor_->arrive(std::move(arrival)); }
  PendingConnectionPtr give_back() noexcept override { return acceptor_->give_back(); }
  void refused(const Failure& why) override { acceptor_->refused(why); }
  void count_rejected() noexcept override { acceptor_->count_rejected(); }

 private:
  const AcceptorPtr acceptor_;
  const PortListenerPtr port_;  // the listening socket; ends before the acceptor that it feeds
};

}}}  // namespace conn::shm
