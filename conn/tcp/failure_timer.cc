// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/failure_timer.h"

#include <new>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace tcp {

void FailureTimer::start(const Carrier& carrier) {
  if (timer_ != 0 || !carrier.host().error_due()) return;
  timer_ = carrier.host().loop()->add_time_event(ae::Duration::zero(), [this, &carrier] {
    timer_ = 0;
    run(carrier);
    return ae::kNoMore;
  });
}

void FailureTimer::stop(ae::EventLoop& loop) noexcept {
  if (timer_ != 0) loop.remove_time_event(std::exchange(timer_, 0));
}

void FailureTimer::run(const Carrier& carrier) {
  struct Then {  // the destructor starts the timer again, even if a handler throws
    FailureTimer& timer;
    const Carrier& carrier;
    ~Then() {
      if (carrier.host().closing()) return;
      try {
        timer.start(carrier);
      } catch (const std::bad_alloc&) {
        // If memory runs out no handler is called, but the next read or write reports the error.
      }
    }
  } then{*this, carrier};
  CarrierHost& host = carrier.host();
  if (host.wants_read() && host.error_unread() &&
      host.run_read_handler() == CarrierHost::Alive::kGone)
    return;
  if (host.wants_write() && host.error_unwritten()) (void)host.run_write_handler();
}

}}}  // namespace conn::tcp
