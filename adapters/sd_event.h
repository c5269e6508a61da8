// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ae::EpollLoop below systemd's sd-event: adapters/guest.h has the rules, docs/adapters.md a
// program. Header only: link the program with libsystemd.

#include <sys/epoll.h>
#include <systemd/sd-event.h>

#include <memory>
#include <system_error>
#include <utility>

#include "adapters/guest.h"
#include "ae/abi.h"

namespace adapters { inline namespace AECONN_ABI { namespace sd_event {

/// While it lives, sd_event_run() and sd_event_loop() turn `loop`, too.
class Attachment {
 public:
  /// Throws std::system_error with what sd-event says.
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
    // It lives until it returns, whatever becomes of the attachment.
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
