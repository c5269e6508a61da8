// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the files of the C interface share. Each of its functions catches what the library throws,
// keeps its sentence for aeconn_error() and sets errno. A connection's handle is the Connection
// itself.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ae/epoll_loop.h"
#include "c/aeconn.h"
#include "conn/registry.h"

struct aeconn_loop {
  aeconn_loop() : owned(std::make_unique<ae::EpollLoop>()), loop(*owned) {}
  explicit aeconn_loop(ae::EpollLoop& of_a_group) : loop(of_a_group) {}
  std::unique_ptr<ae::EpollLoop> owned;                 // null: a group's
  std::thread::id thread = std::this_thread::get_id();  // of a group's
  ae::EpollLoop& loop;
};

namespace aeconn_c {

using conn::Connection;
using conn::ConnectionPtr;

/// Keeps what goes wrong for this thread. Never throws: without memory the old sentence goes.
int failed(int err, std::string_view sentence) noexcept;
/// 0 where there is none; EIO for what no errno explains.
int number_of(const std::error_code& code) noexcept;
/// What is being caught, as errno and sentence.
int caught() noexcept;

/// Runs `body`; -1, or null, where it throws.
template <class Body>
auto guarded(Body&& body) noexcept -> decltype(body()) {
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

/// Of the process: what its loops share (tickets, settings) is shared. Never destroyed, since a
/// connection may outlive main().
conn::Registry& registry();

/// Negative: no limit.
inline ae::Duration limit(int64_t nanoseconds) noexcept {
  return nanoseconds < 0 ? ae::Duration::max() : ae::Duration(nanoseconds);
}

inline Connection::Handler handler(aeconn_conn_fn fn, void* context) {
  if (fn == nullptr) return {};
  return [fn, context](Connection& connection) { fn(context, handle(&connection)); };
}

/// As snprintf(3).
std::size_t copy_out(std::string_view text, char* to, std::size_t size) noexcept;

inline ae::Mask mask_of(int directions) noexcept {
  return static_cast<ae::Mask>(directions & (AECONN_READABLE | AECONN_WRITABLE));
}
static_assert(int{AECONN_READABLE} == int{ae::kReadable} &&
              int{AECONN_WRITABLE} == int{ae::kWritable});

inline void tell(const std::vector<conn::Skipped>& not_taken, aeconn_fact_fn fn, void* context) {
  for (const conn::Skipped& each : not_taken)
    fn(context, each.scheme.c_str(), each.why.text.c_str());
}

}  // namespace aeconn_c
