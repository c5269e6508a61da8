// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Makes the handlers run for the failure of a connection whose socket is no longer watched.

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// A failed socket stays readable and writable, so it is no longer watched. Instead, a timer runs
/// the handlers until they have collected the error. So the loop does not spin if the program
/// closes the connection late.
class FailureTimer {
 public:
  /// Has the loop run the read and the write handler of the connection of `carrier`, as far as they
  /// are due for its failure; no effect if none is, or after a call that was not carried out yet.
  /// stop() must be called before `carrier` is destroyed or its loop ends. Throws std::bad_alloc.
  void start(const Carrier& carrier);
  /// Cancels start().
  void stop(ae::EventLoop& loop) noexcept;

 private:
  void run(const Carrier& carrier);

  ae::TimerId timer_ = 0;  // 0: not started
};

}}}  // namespace conn::tcp
