// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The frames of rpc_server.cc and rpc_client.cc: a header of 12 bytes, then the text.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "conn/in_place.h"

namespace rpc {

enum Status : std::uint32_t { kOk, kTooLate };

struct Header {
  std::uint32_t size = 0;  // of the text
  std::uint32_t id = 0;    // the client's number of the request; its answer has the same
  std::uint32_t info = 0;  // request: milliseconds for which its client waits; answer: a Status
};
constexpr std::size_t kHeader = 12;
constexpr std::size_t kLargest = conn::kMaxContiguous - kHeader;  // text that is read in place

inline std::uint32_t number(std::string_view bytes) {  // in network byte order
  std::uint32_t all = 0;
  for (const char each : bytes.substr(0, 4)) all = all << 8 | static_cast<unsigned char>(each);
  return all;
}

inline Header header_of(std::string_view frame) {
  return {number(frame), number(frame.substr(4)), number(frame.substr(8))};
}

inline void append(std::string& to, const Header& header, std::string_view text) {
  for (const std::uint32_t each : {header.size, header.id, header.info})
    for (const int shift : {24, 16, 8, 0}) to += static_cast<char>(each >> shift);
  to += text;
}

}  // namespace rpc
