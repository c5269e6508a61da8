// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Makes the handlers run for the failure of a connection whose socket is no longer watched.

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// A failed socket stays readable and writable, so watching it would make the loop spin until the
/// program closes the connection. Instead, a timer runs the handlers until they have received the
/// error.
class FailureTimer {
 public:
  /// Makes the loop run those handlers of `carrier`'s connection, for reading and writing, that
  /// have not received its failure yet. No effect if there are none, or if they are due already
  /// because of an earlier call. stop() must be called before `carrier` is destroyed or its loop
  /// ends. Throws std::bad_alloc.
  void start(const Carrier& carrier);
  /// Cancels what start() began: no handler is run.
  void stop(ae::EventLoop& loop) noexcept;

 private:
  void run(const Carrier& carrier);

  ae::TimerId timer_ = 0;  // 0: the timer is not set
};

}}}  // namespace conn::tcp
