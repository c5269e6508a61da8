// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The listening side of shm. A listener of conn/tcp accepts clients on a Unix socket. Each client
// must then send a valid hello (the message that brings the descriptors of the shared memory),
// before the accept handler receives its connection.

#include <list>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/core/acceptor_base.h"
#include "conn/shm/destination.h"
#include "conn/shm/hello.h"
#include "conn/shm/loop_state.h"
#include "conn/shm/settings.h"
#include "conn/shm/setup.h"
#include "conn/tcp/socket_receiver.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

class ShmType;

/// Accepts the clients of a shm listener on one loop: receives the hello (set-up message) of each.
class Acceptor final : public AcceptorBase {
 public:
  Acceptor(const ShmType& type, LoopState& shared, SettingsPtr settings, Served served,
           AcceptHandler accepted);
  void count_rejected() noexcept override { ++counters().refused; }

 private:
  /// A client that has connected, but has not sent its complete hello (set-up message) yet.
  struct Greeting {
    Made made;
    ae::TimePoint began;
    bool watched = false;
    ae::TimerId timer = 0;
    Receipt hello = {};
    ae::MadeHere made_here = {};
  };
  using Greetings = std::list<Greeting>;

  void begin(PendingConnectionPtr arrival) override;
  void on_stop(bool loop_ends) noexcept override;
  void receive(Greetings::iterator client);
  void watch(Greetings::iterator client);
  Answer welcome(Greeting& client, ConnectionPtr& made);
  void forget(Greeting& client) noexcept;
  void evict();
  void leave_to_parent(Greetings::iterator client) noexcept;
  void refuse(Greetings::iterator client, const Answer& answer);

  LoopState& shared_;
  const SettingsPtr settings_;
  const Served served_;
  Greetings greetings_;  // clients whose hello (set-up message) is awaited, oldest first
};

}}}  // namespace conn::shm
