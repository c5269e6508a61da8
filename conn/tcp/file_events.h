// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The file events by which a connection's loop watches its socket for the program's handlers.

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class FileEvents {
 public:
  /// Makes `loop` watch the descriptor `fd` for the events `wanted`, and for no others: it calls
  /// readable() for kReadable and writable() for kWritable; with kBarrier writable() comes first if
  /// both are due. stop() must be called before the descriptor is closed or `loop` ends. Throws
  /// std::bad_alloc; the loop then watches `fd` for only some of the earlier and the new events.
  template <class Readable, class Writable>
  void watch(ae::EventLoop& loop, int fd, ae::Mask wanted, Readable readable, Writable writable) {
    constexpr ae::Mask kWriting = ae::kWritable | ae::kBarrier;
    if (wanted == watched_) return;
    if ((wanted & ae::kReadable) != (watched_ & ae::kReadable)) {
      if ((wanted & ae::kReadable) != 0) {
        loop.add_file_event(fd, ae::kReadable | ae::kTrusted,
                            [readable](int, ae::Mask) { readable(); });
      } else {
        loop.remove_file_event(fd, ae::kReadable);
      }
      // Records what is watched now, since the statements that follow may throw.
      watched_ = (watched_ & kWriting) | (wanted & ae::kReadable);
    }
    if ((wanted & kWriting) != (watched_ & kWriting)) {
      if ((watched_ & ae::kWritable) != 0) loop.remove_file_event(fd, kWriting);
      watched_ = watched_ & ae::kReadable;
      if ((wanted & ae::kWritable) != 0) {
        loop.add_file_event(fd, (wanted & kWriting) | ae::kTrusted,
                            [writable](int, ae::Mask) { writable(); });
      }
    }
    watched_ = wanted;
  }
  /// Ends watching; no effect if nothing is watched.
  void stop(ae::EventLoop& loop, int fd) noexcept {
    if (watched_ != ae::kNone) loop.remove_file_event(fd, ae::kReadable | ae::kWritable);
    watched_ = ae::kNone;
  }
  bool any() const noexcept { return watched_ != ae::kNone; }  ///< whether any event is watched

 private:
  ae::Mask watched_ = ae::kNone;
};

}}}  // namespace conn::tcp
