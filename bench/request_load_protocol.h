// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Requests as bytes, and where the reply to one ends: RESP, memcached's text protocol, echo.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace load {

class Protocol {
 public:
  virtual ~Protocol() = default;
  /// The bytes of a command, which is words separated by blanks. If `value` is not empty it stands
  /// in the place of each word "value".
  virtual std::string request(std::string_view command, std::string_view value) const = 0;
  /// The size of the reply that `bytes` begins with; 0 while it is not complete. Throws conn::Error
  /// for an error reply and for what is no reply at all.
  virtual std::size_t reply_size(std::string_view bytes, std::string_view request) const = 0;
};

/// "resp", "memcached" or "echo". Throws conn::Error for another name.
std::unique_ptr<Protocol> make_protocol(std::string_view name);

/// Requests and their replies, as endless streams: both repeat after the last command, and are
/// held here so often that a piece of `kPiece` bytes is in one place wherever it begins.
class Script {
 public:
  static constexpr std::size_t kPiece = 256 * 1024;

  void add(const std::string& request, const std::string& reply);
  /// After the last add().
  void repeat();

  std::size_t commands() const noexcept { return request_sizes_.size(); }
  std::size_t request_size(std::size_t command) const { return request_sizes_[command]; }
  /// Where the reply to the command ends in the cycle.
  std::size_t reply_end(std::size_t command) const { return reply_ends_[command]; }
  std::size_t request_cycle() const noexcept { return request_cycle_; }
  std::size_t reply_cycle() const noexcept { return reply_ends_.back(); }
  /// At least kPiece bytes from anywhere in the first cycle on.
  std::string_view requests() const noexcept { return requests_; }
  std::string_view replies() const noexcept { return replies_; }

 private:
  std::vector<std::size_t> request_sizes_, reply_ends_;
  std::string requests_, replies_;
  std::size_t request_cycle_ = 0;
};

}  // namespace load
