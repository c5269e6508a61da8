// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// AcceptorBase: what the listeners of all transports do alike. It keeps the program's handlers, the
// limit of connections, pending connections whose set-up has not begun, and connections that wait
// for the accept handler. An AcceptingListener is the object that the program owns.

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/core/handler_slot.h"
#include "ae/event_loop.h"
#include "conn/core/connection_set.h"
#include "conn/core/pending_connection.h"
#include "conn/core/refusals.h"
#include "conn/kit/quota.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {

/// Hands connections over to the accept handler of a listener, or of the acceptor of one loop. No
/// handler of it runs while it is paused, nor inside another of its handlers (in a nested
/// iteration). A handler may destroy the listener: this object then lives on until the handler has
/// returned. To be used on the loop's thread.
class AECONN_API AcceptorBase : public ae::Deferred, public ReadyItem, private LoopEndWatcher {
 public:
  /// Accepts connections of `type` on the loop of `ready`, a list that exists until the end of the
  /// loop. In one iteration it begins the set-up of at most `batch` pending connections, and hands
  /// over at most as many that have waited. `type` must outlive this object. Throws std::bad_alloc.
  AcceptorBase(const ConnectionType& type, ReadyList& ready, unsigned batch,
               AcceptHandler accepted);
  /// Sets option max-connections, for a listener of one loop. Throws std::bad_alloc.
  void limit(std::uint64_t most) { quota_.emplace(most); }
  /// Takes over the listener from which the connections come.
  void listen_on(ListenerPtr port) { port_ = std::move(port); }
  /// Ends everything that is not established yet; no handler runs afterwards. The end of the loop
  /// does the same. Must be called before this object is destroyed: AcceptorPtr does.
  void stop() noexcept { stop(false); }
  bool stopped() const noexcept { return stopped_; }  ///< whether stop() was called

  const ConnectionType& type() const noexcept { return type_; }  ///< of the connections
  ae::EventLoop& loop() const noexcept { return loop_; }         ///< not to be used once stopped
  /// Returns the addresses on which this object listens.
  virtual std::vector<Endpoint> endpoints() const;
  void pause();   ///< see Listener::pause()
  void resume();  ///< see Listener::resume()
  /// Sets the program's handler for refused connections, see Listener::on_refused().
  void on_refused(const RefusedHandler& handler) { refused_.set(handler); }
  /// Runs the handler for refused connections.
  void refused(const Failure& why);
  virtual void count_rejected() noexcept {}  ///< see LoopAcceptor::count_rejected()
  /// Begins the set-up of a pending connection, or keeps it while a handler runs or this object is
  /// paused. Handlers may run.
  void arrive(PendingConnectionPtr arrival);
  /// Does the same in the next iteration. No handler runs in the call.
  void arrive_later(PendingConnectionPtr arrival);
  PendingConnectionPtr give_back() noexcept;  ///< see LoopAcceptor::give_back()

 protected:
  /// Begins the set-up of a pending connection, which has its place in the quota. Ends in a call of
  /// hand_over(), refused() or lost(), at once or later; destroys `arrival` before, in which a
  /// group counts those that wait. If memory is missing, must call lost() instead of throwing
  /// std::bad_alloc.
  virtual void begin(PendingConnectionPtr /*arrival*/) {}
  /// Frees what the transport has for this listener, while the loop still works. `loop_ends`: the
  /// end of the loop is the reason. The pending connections are destroyed after that.
  virtual void on_stop(bool /*loop_ends*/) noexcept {}
  /// Begins to accept, or stops that, for resume() and pause().
  virtual void set_listening(bool wanted);
  std::size_t run_ready() override;

  /// Runs the accept handler, or queues the connection while that must not run. Without memory for
  /// that, the connection is lost.
  void hand_over(ConnectionPtr connection);
  /// Counts a pending connection that cannot become one.
  void lost() noexcept { ++counters_.accept_errors; }
  /// Has run_ready() called in the next iteration.
  void run_soon() noexcept { ready_.push(*this); }
  /// Whether the program's handlers must not run now.
  bool busy() const noexcept { return paused_ || accepted_.running() || refused_.running(); }
  bool paused() const noexcept { return paused_; }  ///< whether pause() was called last
  /// Returns the counters of this transport on this loop.
  LoopCounters& counters() noexcept { return counters_; }
  Listener* port() const noexcept { return port_.get(); }  ///< null: listen_on() was not called

 private:
  struct Then {  // its destructor, which continues with what waits, runs even if a handler throws
    AcceptorBase& acceptor;
    ~Then() { acceptor.go_on(); }
  };
  void on_loop_end() noexcept override { stop(true); }
  void stop(bool loop_ends) noexcept;
  void go_on() noexcept;
  void admit(PendingConnectionPtr arrival);

  const ConnectionType& type_;
  ae::EventLoop& loop_;
  LoopCounters& counters_;  // looked up once, since the look-up may allocate memory
  ReadyList& ready_;
  const unsigned batch_;
  std::optional<Quota> quota_;
  ListenerPtr port_;
  ae::HandlerSlot<void(ConnectionPtr)> accepted_;
  Refusals refused_;
  std::deque<PendingConnectionPtr> arrivals_;  // their set-up has not begun
  std::deque<ConnectionPtr> done_;             // established, they wait for the accept handler
  bool paused_ = false, stopped_ = false;
};

/// Stops an acceptor, and destroys it once none of its handlers is on the stack.
struct AECONN_API StopAcceptor {
  /// Takes ownership of `acceptor`.
  void operator()(AcceptorBase* acceptor) const noexcept;
};
/// Owns an acceptor.
template <class A = AcceptorBase>
using AcceptorPtr = std::unique_ptr<A, StopAcceptor>;

/// The listener, or the acceptor of one loop, that an AcceptorBase works for.
class AECONN_API AcceptingListener : public LoopAcceptor {
 public:
  /// Takes ownership of what accepts.
  explicit AcceptingListener(AcceptorPtr<> acceptor) noexcept : acceptor_(std::move(acceptor)) {}

  const ConnectionType& type() const noexcept override { return acceptor_->type(); }
  std::vector<Endpoint> endpoints() const override { return acceptor_->endpoints(); }
  void pause() override { acceptor_->pause(); }
  void resume() override { acceptor_->resume(); }
  void on_refused(const RefusedHandler& handler) override { acceptor_->on_refused(handler); }
  void arrive(PendingConnectionPtr arrival) override { acceptor_->arrive(std::move(arrival)); }
  PendingConnectionPtr give_back() noexcept override { return acceptor_->give_back(); }
  void refused(const Failure& why) override { acceptor_->refused(why); }
  void count_rejected() noexcept override { acceptor_->count_rejected(); }

 private:
  const AcceptorPtr<> acceptor_;
};

}}  // namespace conn
