// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs an ae::EpollLoop below libevent's event_base. adapters/guest.h has the rules,
// docs/adapters.md has an example program. Header only: link the program with libevent before
// libev, which `ae` needs and which has functions of the same names.

#include <event2/event.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "adapters/guest.h"
#include "ae/abi.h"

namespace adapters { inline namespace AECONN_ABI { namespace libevent {

/// While it exists, event_base_loop() also runs `loop`, and does not return for lack of events.
class Attachment {
 public:
  /// Throws std::system_error if no descriptor is available, std::bad_alloc if libevent is out of
  /// memory or cannot watch the descriptor, std::logic_error if libevent was linked after libev.
  Attachment(ae::EpollLoop& loop, event_base* host, Caught caught = {})
      : guest_(std::make_shared<detail::Guest>(loop, std::move(caught))),
        event_(event_new(libevents(host), guest_->descriptor(), EV_READ | EV_PERSIST, dispatch,
                         &guest_)) {
    if (!event_ || event_add(event_.get(), nullptr) != 0) throw std::bad_alloc();
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

 private:
  static event_base* libevents(event_base* host) {
    // Detects the wrong order of linking: libev has a function of this name, which reports version
    // 4.
    const std::string_view version = event_get_version(), wanted = LIBEVENT_VERSION;
    if (version.substr(0, version.find('.')) != wanted.substr(0, wanted.find('.')))
      throw std::logic_error(
          "libev's functions are called for libevent's: link libevent before libev");
    return host;
  }
  static void dispatch(evutil_socket_t, short, void* guest) {
    // Keeps the guest alive until the call returns, even if the attachment is destroyed.
    const auto kept = *static_cast<const std::shared_ptr<detail::Guest>*>(guest);
    kept->dispatch();
  }
  struct Free {
    void operator()(event* event) const { event_free(event); }
  };

  std::shared_ptr<detail::Guest> guest_;
  std::unique_ptr<event, Free> event_;
};

}}}  // namespace adapters::libevent
