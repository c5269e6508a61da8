// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs an ae::EpollLoop below systemd's sd-event. adapters/guest.h has the rules, docs/adapters.md
// has an example program. Header only: link the program with libsystemd.

#include <sys/epoll.h>
#include <systemd/sd-event.h>

#include <memory>
#include <system_error>
#include <utility>

#include "adapters/guest.h"
#include "ae/abi.h"

namespace adapters { inline namespace AECONN_ABI { namespace sd_event {

/// While it exists, sd_event_run() and sd_event_loop() also run `loop`.
class Attachment {
 public:
  /// Throws std::system_error with the error of sd-event.
  Attachment(ae::EpollLoop& loop, ::sd_event* host, Caught caught = {})
      : guest_(std::make_shared<detail::Guest>(loop, std::move(caught))) {
    check(sd_event_add_io(host, &source_, guest_->descriptor(), EPOLLIN, dispatch, &guest_));
    const int wrong = sd_event_source_set_prepare(source_, prepare);
    if (wrong >= 0) return;
    sd_event_source_unref(source_);
    check(wrong);
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  ~Attachment() {
    guest_->end_prepare();
    sd_event_source_set_enabled(source_, SD_EVENT_OFF);
    sd_event_source_unref(source_);
  }

 private:
  static void check(int status) {
    if (status < 0) throw std::system_error(-status, std::generic_category(), "sd-event");
  }
  static int dispatch(sd_event_source*, int, std::uint32_t, void* guest) {
    // Keeps the guest alive until the call returns, even if the attachment is destroyed.
    const auto kept = *static_cast<const std::shared_ptr<detail::Guest>*>(guest);
    kept->dispatch();
    return 0;
  }
  static int prepare(sd_event_source*, void* guest) {
    const auto kept = *static_cast<const std::shared_ptr<detail::Guest>*>(guest);
    kept->prepare();
    return 0;
  }

  std::shared_ptr<detail::Guest> guest_;
  sd_event_source* source_ = nullptr;
};

}}}  // namespace adapters::sd_event
