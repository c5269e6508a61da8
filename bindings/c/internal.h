// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Shared by the sources of the C interface. Each C function catches what the library throws, stores
// its sentence for aeconn_error() and sets errno. The handle of a connection is the Connection
// itself.

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "ae/core/fork.h"
#include "ae/epoll_loop.h"
#include "ae/loop_group.h"
#include "ae/loops.h"
#include "c/aeconn.h"
#include "conn/listener_group.h"
#include "conn/registry.h"

struct aeconn_loop {
  aeconn_loop() : owned(std::make_unique<ae::EpollLoop>()), loop(*owned) {}
  explicit aeconn_loop(ae::EpollLoop& of_a_group) : loop(of_a_group) {}
  // Stored contexts for aeconn_collect(), which has returned `collected` of them.
  std::vector<void*> noted;
  std::size_t collected = 0;
  // What a handler threw after contexts were stored: aeconn_collect() reports it after these.
  std::exception_ptr thrown;
  // The process in which the loop was created or aeconn_after_fork() was called.
  ae::MadeHere made_here;
  // Destroyed first: as the loop ends, it runs functions of the program, which may use this handle.
  std::unique_ptr<ae::EpollLoop> owned;  // null if the loop belongs to a group
  ae::EpollLoop& loop;
};

struct aeconn_group {
  ae::Loops& all() const noexcept {
    return threads ? static_cast<ae::Loops&>(*threads) : static_cast<ae::Loops&>(*list);
  }
  // The handle of each loop; `made` owns those of the loops of `threads`.
  std::vector<aeconn_loop*> loops;
  std::vector<std::unique_ptr<aeconn_loop>> made;
  // Exactly one of these two is set: loops on threads of their own, or loops of the program.
  std::unique_ptr<ae::LoopGroup> threads;
  std::unique_ptr<ae::LoopList> list;
  // True once the threads of `threads` have been joined, so that other threads may have their ids.
  std::atomic<bool> joined{false};
};

struct aeconn_listener {
  conn::ListenerPtr listener;
  // Those that aeconn_listener_url() returns. Empty only if aeconn_listen_on() had no memory for
  // them: then the first call of that function stores them.
  mutable std::vector<std::string> urls;
  // The same as `listener`, if it listens for a group of loops; null otherwise.
  const conn::ListenerGroup* of_group = nullptr;
};

namespace aeconn_c {

using conn::Connection;
using conn::ConnectionPtr;

/// Sets errno and stores this thread's error sentence. Returns -1. Never throws: without memory the
/// sentence becomes empty.
int failed(int err, std::string_view sentence) noexcept;
/// Returns the errno value of an error code: 0 if there is no error; EIO if no errno value matches.
int number_of(const std::error_code& code) noexcept;
/// Reports the exception being handled through failed(). Returns -1.
int caught() noexcept;

/// Delays pthread_cancel() until the thread has left the library: cancelling a thread unwinds its
/// stack, and in functions that are noexcept this would end the process.
class NoCancel {
 public:
  NoCancel() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

/// Runs `body`; returns -1 or null if it throws.
template <class Body>
auto guarded(Body&& body) noexcept -> decltype(body()) {
  const NoCancel held;
  try {
    return body();
  } catch (...) {
    if constexpr (std::is_pointer_v<decltype(body())>) {
      caught();
      return nullptr;
    } else {
      return static_cast<decltype(body())>(caught());
    }
  }
}

template <class Result = int>
Result no_handle() noexcept {
  failed(EINVAL, "a handle, a text or a function is NULL");
  if constexpr (std::is_pointer_v<Result>)
    return nullptr;
  else
    return static_cast<Result>(-1);
}

inline Connection* of(aeconn_conn* conn) noexcept { return reinterpret_cast<Connection*>(conn); }
inline const Connection* of(const aeconn_conn* conn) noexcept {
  return reinterpret_cast<const Connection*>(conn);
}
inline aeconn_conn* handle(Connection* connection) noexcept {
  return reinterpret_cast<aeconn_conn*>(connection);
}

/// The one registry of the process, so that all loops share TLS session tickets and settings. Never
/// destroyed, since a connection may outlive main().
conn::Registry& registry();

/// Converts a duration of the C interface. A negative one means no limit.
inline ae::Duration limit(int64_t nanoseconds) noexcept {
  return nanoseconds < 0 ? ae::Duration::max() : ae::Duration(nanoseconds);
}

inline Connection::Handler handler(aeconn_conn_fn fn, void* context) {
  if (fn == nullptr) return {};
  return [fn, context](Connection& connection) { fn(context, handle(&connection)); };
}

/// Copies text as snprintf(3) does.
std::size_t copy_out(std::string_view text, char* to, std::size_t size) noexcept;

inline ae::Mask mask_of(int directions) noexcept {
  return static_cast<ae::Mask>(directions & (AECONN_READABLE | AECONN_WRITABLE));
}
static_assert(int{AECONN_READABLE} == int{ae::kReadable} &&
              int{AECONN_WRITABLE} == int{ae::kWritable});

/// Calls `fn` with the name and the value of each statistic.
inline void tell(const conn::Statistics& all, aeconn_fact_fn fn, void* context) {
  for (const auto& [name, value] : all) fn(context, name.c_str(), std::to_string(value).c_str());
}
/// Returns the statistics of one transport on a loop, or of the loop itself if `scheme` is null. To
/// be called on the loop's thread.
conn::Statistics statistics_of(ae::EpollLoop& loop, const char* scheme);

/// Whether the calling thread is one of the group's threads, which cannot wait for the group.
/// Always false in a child of fork().
bool on_its_thread(const aeconn_group& group) noexcept;

/// Creates the listener's handle. Throws std::bad_alloc.
aeconn_listener* made(conn::ListenerPtr listener);

inline void tell(const std::vector<conn::Skipped>& not_taken, aeconn_fact_fn fn, void* context) {
  for (const conn::Skipped& each : not_taken)
    fn(context, each.scheme.c_str(), each.why.text.c_str());
}

}  // namespace aeconn_c
