// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs an ae::EpollLoop below libuv's loop. adapters/guest.h has the rules, docs/adapters.md has an
// example program. Header only: link the program with libuv.

#include <uv.h>

#include <memory>
#include <system_error>
#include <utility>

#include "adapters/guest.h"
#include "ae/abi.h"

namespace adapters { inline namespace AECONN_ABI { namespace libuv {

/// While it exists, uv_run() also runs `loop`, and does not return for lack of other handles. After
/// its destruction `host` must free two handles: run it once more before uv_loop_close(), as
/// uv_close() requires.
class Attachment {
 public:
  /// Throws std::system_error if no descriptor is available, or libuv is out of memory.
  Attachment(ae::EpollLoop& loop, uv_loop_t* host, Caught caught = {}) {
    auto handles = std::make_unique<Handles>(loop, std::move(caught));
    check(uv_poll_init(host, &handles->poll, handles->guest.descriptor()));
    handles->poll.data = handles.get();
    handles_ = handles.release();  // libuv keeps the handles until both are closed
    uv_prepare_init(host, &handles_->prepare);
    handles_->prepare.data = handles_;
    uv_unref(reinterpret_cast<uv_handle_t*>(&handles_->prepare));
    uv_prepare_start(&handles_->prepare, [](uv_prepare_t* handle) {
      static_cast<Handles*>(handle->data)->guest.prepare();
    });
    const int wrong = uv_poll_start(&handles_->poll, UV_READABLE, [](uv_poll_t* handle, int, int) {
      static_cast<Handles*>(handle->data)->guest.dispatch();
    });
    if (wrong == 0) return;
    close();
    check(wrong);
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  ~Attachment() {
    handles_->guest.end_prepare();
    close();
  }

 private:
  struct Handles {
    Handles(ae::EpollLoop& loop, Caught caught) : guest(loop, std::move(caught)) {}
    detail::Guest guest;
    uv_poll_t poll{};
    uv_prepare_t prepare{};
    int open = 2;  // handles not yet closed by libuv
  };

  static void check(int status) {
    if (status < 0) throw std::system_error(-status, std::generic_category(), "libuv");
  }
  static void closed(Handles* handles) {
    if (--handles->open == 0) delete handles;
  }
  void close() noexcept {
    uv_close(reinterpret_cast<uv_handle_t*>(&handles_->poll),
             [](uv_handle_t* handle) { closed(static_cast<Handles*>(handle->data)); });
    uv_close(reinterpret_cast<uv_handle_t*>(&handles_->prepare),
             [](uv_handle_t* handle) { closed(static_cast<Handles*>(handle->data)); });
  }

  Handles* handles_;
};

}}}  // namespace adapters::libuv
