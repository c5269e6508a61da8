// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests of in-place data: the contents of views, and bytes that are sent in place.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "conn/in_place.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace in_place_kit {

using conn::Connection;
using conn::Outgoing;
using conn::View;
using testing::Pair;

inline std::string text_of(const View& view) {
  std::string text;
  for (const iovec& piece : std::span(view.pieces).first(static_cast<std::size_t>(view.count)))
    text.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  REQUIRE(text.size() == view.size);
  return text;
}

/// Runs the loop until peek() shows `size` bytes, or reports that no more will come.
inline View peek_until(testing::Site& site, Connection& connection, std::size_t size) {
  View view;
  RUN_UNTIL(site.loop,
            (view = connection.peek(std::min(size, conn::kMaxContiguous)), view.size >= size) ||
                view.last || (view.size == 0 && errno != EAGAIN));
  return view;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// Bytes that are sent in place; counts their releases.
struct Parcel {
  explicit Parcel(std::string its_text) : text(std::move(its_text)) {}
  Outgoing outgoing(const conn::Memory* memory = nullptr) {
    return {bytes_of(text), &Parcel::released, this, memory};
  }
  static void released(void* context, std::error_code why) noexcept {
    auto& parcel = *static_cast<Parcel*>(context);
    ++parcel.releases;
    parcel.error = why;
    if (parcel.then) parcel.then();
  }
  std::string text;
  int releases = 0;
  std::error_code error;
  std::function<void()> then;
};

inline std::string pattern_of(std::uint64_t seed, std::size_t size, std::uint64_t from = 0) {
  const testing::Pattern pattern(seed);
  std::string text;
  while (text.size() < size)
    text.append(pattern.at(from + text.size()).substr(0, size - text.size()));
  return text;
}

inline void put(Connection& connection, std::string_view text) {
  const std::span<std::byte> room = connection.reserve(text.size());
  REQUIRE(room.size() >= text.size());
  std::memcpy(room.data(), text.data(), text.size());
  connection.commit(text.size());
}

/// Commits the text if reserve() succeeds at once. Returns what was committed.
inline std::string put_if_room(Connection& connection, const std::string& text) {
  const std::span<std::byte> room = connection.reserve(text.size());
  if (room.empty()) return {};
  std::memcpy(room.data(), text.data(), text.size());
  connection.commit(text.size());
  return text;
}

/// Writes until the send buffer is full, and returns what was written.
inline std::string fill(Connection& connection) {
  std::string sent;
  const std::string block = pattern_of(77, 32 << 10);
  for (ssize_t n = 0; (n = connection.write(block.data(), block.size())) > 0;)
    sent.append(block, 0, static_cast<std::size_t>(n));
  REQUIRE(errno == EAGAIN);
  return sent;
}

}  // namespace in_place_kit
