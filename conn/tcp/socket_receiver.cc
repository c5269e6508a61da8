// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_receiver.h"

#include <sys/socket.h>

#include <deque>
#include <new>

#include "ae/core/handler_slot.h"
#include "conn/core/make_connection.h"
#include "conn/core/refusals.h"
#include "conn/tcp/socket_carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

ConnectionPtr adopt_accepted(const SocketType& type, ae::EventLoop& loop,
                             std::shared_ptr<const Settings> settings, Accepted socket,
                             Quota::Place place) {
  auto [connection, carrier] = make_connection<SocketCarrier>(loop, type, std::move(settings));
  carrier.adopt(std::move(socket), std::move(place));
  return std::move(connection);
}

void SocketPending::refuse(std::string_view why) noexcept {
  try {
    const std::string bytes = type_.refusal(why);
    if (!bytes.empty())
      (void)::send(socket_.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } catch (const std::bad_alloc&) {  // then the client is not told
  }
}

struct SocketLoopAcceptor::Core final : ae::Deferred {
  Core(const SocketType& its_type, ae::EventLoop& its_loop,
       std::shared_ptr<const Settings> its_settings, AcceptHandler its_accepted)
      : type(its_type), loop(its_loop), settings(std::move(its_settings)) {
    accepted.set(std::move(its_accepted));
  }
  ~Core() override { stop(); }
  void stop() noexcept {
    stopped = true;
    if (timer != 0) loop.remove_time_event(std::exchange(timer, 0));
    waiting.clear();
    refused.clear();
    accepted.clear();  // must come last, because destroying the handler may run any code
  }
  void begin(PendingConnectionPtr arrival) {
    auto& pending = static_cast<SocketPending&>(*arrival);
    ConnectionPtr owner;
    try {
      owner = adopt_accepted(type, loop, settings, std::move(pending.socket_),
                             std::move(pending.place));
    } catch (const std::bad_alloc&) {
      // if memory runs out, only this pending connection is lost; accepting continues
      ++type.counters(loop).accept_errors;
      return;
    }
    arrival.reset();
    accepted.run(std::move(owner));
  }
  PendingConnectionPtr take_next() noexcept {
    PendingConnectionPtr next = std::move(waiting.front());
    waiting.pop_front();
    return next;
  }
  void schedule() {
    if (timer != 0 || paused || stopped || waiting.empty()) return;
    timer = loop.add_time_event(ae::Duration::zero(), [this] {
      // its destructor, which continues with the next connection, runs even if a handler throws
      struct GoOn {
        Core& core;
        ~GoOn() {
          core.timer = 0;
          try {
            core.schedule();
          } catch (const std::bad_alloc&) {
            // If memory runs out, the timer is not set; the next pending connection tries again.
          }
        }
      } go_on{*this};
      for (unsigned n = 0; n < settings->accept_batch && !paused && !waiting.empty(); ++n) {
        if (n != 0 && !loop.has_time()) break;
        // The accept handler is on the stack: it runs a nested iteration of the loop, which has
        // called this.
        if (accepted.running()) break;
        begin(take_next());
      }
      return ae::kNoMore;
    });
  }

  const SocketType& type;
  ae::EventLoop& loop;
  const std::shared_ptr<const Settings> settings;
  ae::HandlerSlot<void(ConnectionPtr)> accepted;
  Refusals refused;
  // Pending connections that arrived while the acceptor was paused or its accept handler ran.
  std::deque<PendingConnectionPtr> waiting;
  ae::TimerId timer = 0;  // timer whose callback accepts the connections in `waiting`; 0: not set
  bool paused = false, stopped = false;
};

SocketLoopAcceptor::SocketLoopAcceptor(const SocketType& type, ae::EventLoop& loop,
                                       std::shared_ptr<const Settings> settings,
                                       AcceptHandler accepted)
    : core_(std::make_unique<Core>(type, loop, std::move(settings), std::move(accepted))) {
  (void)type.counters(loop);  // allocates the counters now, since memory may be short later
}

SocketLoopAcceptor::~SocketLoopAcceptor() {
  core_->stop();
  ae::EventLoop& loop = core_->loop;
  loop.destroy_later(std::move(core_));
}

const ConnectionType& SocketLoopAcceptor::type() const noexcept { return core_->type; }
void SocketLoopAcceptor::pause() { core_->paused = true; }
void SocketLoopAcceptor::resume() {
  core_->paused = false;
  core_->schedule();
}
void SocketLoopAcceptor::on_refused(const RefusedHandler& handler) { core_->refused.set(handler); }
void SocketLoopAcceptor::refused(const Failure& why) { core_->refused.tell(why); }

void SocketLoopAcceptor::arrive(PendingConnectionPtr arrival) {
  if (!core_->paused && !core_->accepted.running() && core_->waiting.empty())
    return core_->begin(std::move(arrival));
  try {
    core_->waiting.push_back(std::move(arrival));
    core_->schedule();
  } catch (const std::bad_alloc&) {
    ++core_->type.counters(core_->loop).accept_errors;
  }
}

PendingConnectionPtr SocketLoopAcceptor::give_back() noexcept {
  return core_->waiting.empty() ? nullptr : core_->take_next();
}

}}}  // namespace conn::tcp
