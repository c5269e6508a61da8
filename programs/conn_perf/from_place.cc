// SPDX-License-Identifier: BSD-3-Clause
#include "from_place.h"

#include <functional>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "conn/connection_type.h"

namespace perf {

struct FromPlace::Place {
  std::shared_ptr<std::vector<char>> bytes;
  std::unique_ptr<conn::Memory> memory;
  std::size_t users = 1;  // the owner, plus each send() not yet released

  bool holds(const iovec& part) const noexcept {
    const std::less_equal<> before;  // also ordered for pointers into different objects
    const char* const from = static_cast<const char*>(part.iov_base);
    return before(bytes->data(), from) &&
           before(from + part.iov_len, bytes->data() + bytes->size());
  }
  static void release(void* place, std::error_code) noexcept {
    auto* const self = static_cast<Place*>(place);
    if (--self->users == 0) delete self;
  }
};

void FromPlace::leave() noexcept {
  if (place_ != nullptr) Place::release(std::exchange(place_, nullptr), {});
}

ssize_t FromPlace::write(conn::Connection& connection, ae::EventLoop& loop, const Payload& payload,
                         std::span<const iovec> vectors) {
  if (place_ == nullptr || place_->bytes != payload.bytes()) {
    auto made = std::make_unique<Place>();
    made->bytes = payload.bytes();
    made->memory =
        connection.type().register_memory(loop, std::as_writable_bytes(std::span(*made->bytes)));
    leave();
    place_ = made.release();
  }
  ssize_t done = 0;
  for (const iovec& part : vectors) {
    ssize_t size;
    if (place_->holds(part)) {
      const auto* const from = static_cast<const std::byte*>(part.iov_base);
      size = connection.send({{from, part.iov_len}, Place::release, place_, place_->memory.get()});
      if (size >= 0) ++place_->users;
    } else {
      size = connection.write(part.iov_base, part.iov_len);
    }
    if (size < 0) return done != 0 ? done : size;
    done += size;
    if (static_cast<std::size_t>(size) < part.iov_len) break;
  }
  return done;
}

}  // namespace perf
