// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests of in-place data over rdma: a pair of ends of which one leaves received bytes in the
// receive windows, registered memory that counts its releases, and a reader that verifies the bytes
// it peeks at.

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "conn/connection_type.h"
#include "tests/simulation/room.h"

namespace simulation {

inline constexpr std::size_t kKibi = 1024;

struct Place : Room {
  explicit Place(const std::string& options = "?in-place=yes&keepalive=0ms",
                 const Profile& profile = chosen_profile(), Config config = {})
      : Room(config, options, profile, profile) {}
  /// Connects a client and takes the accepted end, without handlers.
  void join(const std::string& more = {}) {
    const std::size_t before = log.clients.size();
    client = connected(more);
    RUN_UNTIL(loop, log.clients.size() == before + 1);
    server = log.clients.back().get();
    server->set_read_handler(nullptr);
  }
  std::uint64_t counter(const std::string& name) {
    for (const auto& [key, value] : type.statistics(loop))
      if (key == name) return value;
    FAIL("no counter " << name);
    return 0;
  }
  conn::ConnectionPtr client;
  conn::Connection* server = nullptr;
};

inline std::string text_of(const conn::View& view) {
  std::string text;
  for (int i = 0; i < view.count; ++i) {
    const iovec& piece = view.pieces[static_cast<std::size_t>(i)];
    text.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  }
  return text;
}

inline std::string pattern_of(std::uint64_t seed, std::size_t size) {
  const testing::Pattern pattern(seed);
  std::string text;
  while (text.size() < size) text.append(pattern.at(text.size()).substr(0, size - text.size()));
  return text;
}

/// Runs the loop until peek() shows `size` bytes.
inline conn::View peek_until(Place& place, conn::Connection& connection, std::size_t size,
                             std::size_t together = 1) {
  conn::View view;
  RUN_UNTIL(place.loop, (view = connection.peek(together), view.size >= size));
  return view;
}

inline void put(conn::Connection& connection, std::string_view text) {
  const std::span<std::byte> room = connection.reserve(text.size());
  REQUIRE(room.size() >= text.size());
  std::memcpy(room.data(), text.data(), text.size());
  connection.commit(text.size());
}

/// Registered memory of the program; counts the releases of its parts and their errors.
struct Store {
  Store(Place& place, std::size_t size)
      : bytes(pattern_of(5, size)),
        memory(place.type.register_memory(place.loop,
                                          std::as_writable_bytes(std::span<char>(bytes)))) {}
  conn::Outgoing part(std::size_t at, std::size_t size) {
    return {std::as_bytes(std::span<const char>(bytes)).subspan(at, size), &Store::released, this,
            memory.get()};
  }
  static void released(void* context, std::error_code why) noexcept {
    auto& store = *static_cast<Store*>(context);
    ++store.releases;
    if (why) ++store.errors;
  }
  std::string bytes;
  std::unique_ptr<conn::Memory> memory;
  int releases = 0, errors = 0;
};

/// Peeks and consumes the received bytes, and compares them with the pattern.
struct Reader {
  Reader(conn::Connection& connection, std::uint64_t seed) : pattern(seed) {
    connection.set_read_handler([this](conn::Connection& here) {
      for (conn::View view; (view = here.peek()).size != 0; here.consume(view.size)) {
        stable = view.stable;
        for (int i = 0; i < view.count; ++i) {
          const iovec& piece = view.pieces[static_cast<std::size_t>(i)];
          intact = intact &&
                   pattern.matches(size, {static_cast<const char*>(piece.iov_base), piece.iov_len});
          size += piece.iov_len;
        }
      }
      ended = errno == 0;
      if (errno != EAGAIN) here.set_read_handler(nullptr);
    });
  }
  const testing::Pattern pattern;
  std::size_t size = 0;
  bool stable = true, intact = true, ended = false;
};

}  // namespace simulation
