// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A recorded conversation of clients with a redis-server 7.0.15: requests and replies.

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "examples/kv_server/resp_text.h"
#include "tests/support/catch.h"

namespace kv_kit {

struct Exchange {
  std::string request, reply;  ///< as bytes; an empty reply is not compared
  std::string command;         ///< as text
};

inline constexpr const char* kRecorded = "tests/recorded/redis-7.0.txt";
inline constexpr std::size_t kExchanges = 169;

inline std::string unescape(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    const char kind = text.at(++i);
    if (kind == 'x') {
      result += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      result += kind == 'r' ? '\r' : kind == 'n' ? '\n' : kind;
    }
  }
  return result;
}

inline std::string expand(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t count = 0, digit = i + 1;
    while (text[i] == '@' && digit < text.size() && text[digit] >= '0' && text[digit] <= '9') {
      count = count * 10 + static_cast<std::size_t>(text[digit++] - '0');
    }
    if (count == 0) {
      result += text[i];
    } else {
      result.append(count, 'x');
      i = digit - 1;
    }
  }
  return result;
}

inline std::string encode(std::string_view line) {
  std::string storage;
  std::vector<kv::TextSpan> spans;
  REQUIRE(kv::split_arguments(line, storage, spans));
  std::string out = "*" + std::to_string(spans.size()) + "\r\n";
  for (const auto& span : spans) {
    out += "$" + std::to_string(span.size) + "\r\n";
    out += storage.substr(span.offset, span.size) + "\r\n";
  }
  return out;
}

inline std::vector<Exchange> recorded() {
  std::ifstream file(kRecorded);
  INFO(kRecorded << ": tests run in the folder of the tree");
  REQUIRE(file);
  std::vector<Exchange> all;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    if (!line.starts_with("=>"))
      all.push_back({encode(expand(unescape(line))), {}, unescape(line)});
    else if (line.size() > 3)
      all.back().reply = expand(unescape(std::string_view(line).substr(3)));
  }
  REQUIRE(all.size() == kExchanges);
  return all;
}

}  // namespace kv_kit
