// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// AcceptorBase: what the listeners of all transports have in common. It stores the program's
// handlers, the limit on the number of connections, pending connections whose set-up has not begun,
// and established connections that wait for the accept handler. An AcceptingListener is the object
// that the program owns.

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/core/handler_slot.h"
#include "ae/event_loop.h"
#include "conn/core/arrival_source.h"
#include "conn/core/connection_set.h"
#include "conn/core/pending_connection.h"
#include "conn/core/refusals.h"
#include "conn/kit/quota.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {

/// Passes connections to the accept handler of a listener, or of the acceptor of one loop. None of
/// its handlers runs while it is paused, nor inside another of its handlers (in a nested iteration
/// of the loop). A handler may destroy the listener: this object then lives on until the handler
/// has returned. To be used on the loop's thread.
class AECONN_API AcceptorBase : public ae::Deferred,
                                public ReadyItem,
                                private LoopEndWatcher,
                                private ArrivalSource {
 public:
  /// Accepts connections of `type` on the loop of `ready`, a list that exists until the end of the
  /// loop. In one iteration it begins the set-up of at most `batch` pending connections, and passes
  /// at most `batch` waiting established connections to the accept handler. `type` must outlive
  /// this object. Throws std::bad_alloc.
  AcceptorBase(const ConnectionType& type, ReadyList& ready, unsigned batch,
               AcceptHandler accepted);
  /// Limits the number of connections to `most` (option max-connections), for a listener of one
  /// loop. Throws std::bad_alloc.
  void limit(std::uint64_t most) { quota_.emplace(most); }
  /// Takes ownership of the listener on the port from which the connections come.
  void listen_on(ListenerPtr port) { port_ = std::move(port); }
  /// Stops accepting, and closes all connections that the accept handler has not received; no
  /// handler runs afterwards. The end of the loop does the same. Must be called before this object
  /// is destroyed; AcceptorPtr does so.
  void stop() noexcept { stop(false); }
  bool stopped() const noexcept { return stopped_; }  ///< returns whether stop() was called

  const ConnectionType& type() const noexcept { return type_; }  ///< transport of the connections
  /// Returns the loop on which this object accepts; not to be called after stop().
  ae::EventLoop& loop() const noexcept { return loop_; }
  /// Returns the addresses on which this object listens.
  virtual std::vector<Endpoint> endpoints() const;
  void pause();      ///< stops accepting until resume(), see Listener::pause()
  void hold_back();  ///< stops accepting for a short time, see Listener::hold_back()
  void resume();     ///< starts accepting again, see Listener::resume()
  /// Sets the program's handler for refused connections, see Listener::on_refused().
  void on_refused(const RefusedHandler& handler) { refused_.set(handler); }
  /// Runs the handler for refused connections.
  void refused(const Failure& why);
  /// Counts a connection that was refused or lost elsewhere, see LoopAcceptor::count_rejected().
  virtual void count_rejected() noexcept {}
  /// Begins the set-up of a pending connection; if a handler runs or this object is paused, queues
  /// the connection until later. The program's handlers may run inside this call.
  void arrive(PendingConnectionPtr arrival);
  /// Queues a pending connection, whose set-up begins in the loop's next iteration. No handler runs
  /// inside this call.
  void arrive_later(PendingConnectionPtr arrival);
  /// Removes and returns the oldest queued pending connection; null if there is none.
  PendingConnectionPtr give_back() noexcept;

 protected:
  /// Begins the set-up of a pending connection, which already counts in the quota. The set-up must
  /// end with a call of hand_over(), refused() or lost(), at once or later. `arrival` must be
  /// destroyed before that call, because a listener group counts the PendingConnection objects of
  /// each loop as waiting. If there is no memory, this function must call lost() instead of
  /// throwing std::bad_alloc.
  virtual void begin(PendingConnectionPtr /*arrival*/) {}
  /// Frees what the transport has for this listener, while the loop still works. `loop_ends`: the
  /// end of the loop is the reason. The pending connections are destroyed after that.
  virtual void on_stop(bool /*loop_ends*/) noexcept {}
  /// Starts accepting if `wanted` is true, otherwise stops. Called by resume() and pause().
  virtual void set_listening(bool wanted);
  std::size_t run_ready() override;

  /// Runs the accept handler with an established connection. If the handler must not run now,
  /// queues the connection; if there is no memory for that, closes the connection and calls lost().
  void hand_over(ConnectionPtr connection);
  /// Counts a pending connection as lost: the accept handler does not get it.
  void lost() noexcept { ++counters_.accept_errors; }
  /// Arranges that the loop calls run_ready() in its next iteration.
  void run_soon() noexcept { ready_.push(*this); }
  /// Returns whether the program's handlers must not run now.
  bool busy() const noexcept { return paused_ || accepted_.running() || refused_.running(); }
  /// Returns whether pause() was called after the last resume().
  bool paused() const noexcept { return paused_; }
  /// Returns the counters of this transport on this loop.
  LoopCounters& counters() noexcept { return counters_; }
  /// The listener on the port; null: listen_on() was not called.
  Listener* port() const noexcept { return port_.get(); }

 private:
  struct Then {  // calls go_on() at the end of a scope, even if a handler throws
    AcceptorBase& acceptor;
    ~Then() { acceptor.go_on(); }
  };
  void on_loop_end() noexcept override { stop(true); }
  Left accept_arrived() override;
  void stop(bool loop_ends) noexcept;
  void go_on() noexcept;
  bool listens_again() noexcept;
  void admit(PendingConnectionPtr arrival);

  const ConnectionType& type_;
  ae::EventLoop& loop_;
  LoopCounters& counters_;  // stored, since looking up a loop's counters may allocate memory
  ReadyList& ready_;
  const unsigned batch_;
  std::optional<Quota> quota_;
  ListenerPtr port_;
  ae::HandlerSlot<void(ConnectionPtr)> accepted_;
  Refusals refused_;
  std::deque<PendingConnectionPtr> arrivals_;  // pending connections whose set-up has not begun
  // Established connections that wait for the accept handler.
  std::deque<ConnectionPtr> done_;
  bool paused_ = false, stopped_ = false;
  bool held_ = false;  // true if this object is paused by hold_back() and not by pause()
  // True if the port does not accept, because too many pending connections wait in arrivals_.
  bool port_full_ = false;
};

/// Stops an acceptor, and destroys it once none of its handlers is executing.
struct AECONN_API StopAcceptor {
  /// Takes ownership of `acceptor`.
  void operator()(AcceptorBase* acceptor) const noexcept;
};
/// Owns an acceptor.
template <class A = AcceptorBase>
using AcceptorPtr = std::unique_ptr<A, StopAcceptor>;

/// The Listener object of a program, or of one loop of a listener group. An AcceptorBase does its
/// work.
class AECONN_API AcceptingListener : public LoopAcceptor {
 public:
  /// Takes ownership of `acceptor`, which does the work.
  explicit AcceptingListener(AcceptorPtr<> acceptor) noexcept : acceptor_(std::move(acceptor)) {}

  const ConnectionType& type() const noexcept override { return acceptor_->type(); }
  std::vector<Endpoint> endpoints() const override { return acceptor_->endpoints(); }
  void pause() override { acceptor_->pause(); }
  void hold_back() override { acceptor_->hold_back(); }
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
