// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Request encoding and reply framing: RESP, memcached's text protocol, echo, and frames: 4 bytes of
// length, big-endian, and the payload.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace load {

class Protocol {
 public:
  virtual ~Protocol() = default;
  /// Encodes a command, which is words separated by blanks. If `value` is not empty, it replaces
  /// each word "value".
  virtual std::string request(std::string_view command, std::string_view value) const = 0;
  /// The size of the reply at the beginning of `bytes`; 0 while it is incomplete. Throws
  /// conn::Error for an error reply and for invalid bytes.
  virtual std::size_t reply_size(std::string_view bytes, std::string_view request) const = 0;
};

/// "resp", "memcached", "echo" or "frames". Throws conn::Error for another name.
std::unique_ptr<Protocol> make_protocol(std::string_view name);

/// Requests and their replies as endless streams: both repeat after the last command, and are
/// stored often enough that any piece of `kPiece` bytes is contiguous.
class Script {
 public:
  static constexpr std::size_t kPiece = 256 * 1024;

  void add(const std::string& request, const std::string& reply);
  /// Call this after the last add().
  void repeat();

  std::size_t commands() const noexcept { return request_sizes_.size(); }
  std::size_t request_size(std::size_t command) const { return request_sizes_[command]; }
  /// End of the command's reply within the cycle.
  std::size_t reply_end(std::size_t command) const { return reply_ends_[command]; }
  std::size_t request_cycle() const noexcept { return request_cycle_; }
  std::size_t reply_cycle() const noexcept { return reply_ends_.back(); }
  /// At least kPiece bytes from any offset in the first cycle.
  std::string_view requests() const noexcept { return requests_; }
  std::string_view replies() const noexcept { return replies_; }

 private:
  std::vector<std::size_t> request_sizes_, reply_ends_;
  std::string requests_, replies_;
  std::size_t request_cycle_ = 0;
};

}  // namespace load
