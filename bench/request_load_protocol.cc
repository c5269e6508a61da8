// SPDX-License-Identifier: BSD-3-Clause
#include "request_load_protocol.h"

#include <cctype>
#include <charconv>

#include "conn/error.h"
#include "examples/kv_server/resp_reply.h"

namespace load {
namespace {

std::vector<std::string> words_of(std::string_view command, std::string_view value) {
  std::vector<std::string> words;
  while (!command.empty()) {
    const std::string_view word = command.substr(0, command.find(' '));
    if (word == "value" && !value.empty()) {
      words.emplace_back(value);
    } else if (!word.empty()) {
      words.emplace_back(word);
    }
    command.remove_prefix(std::min(word.size() + 1, command.size()));
  }
  if (words.empty()) throw conn::Error("a command is empty");
  return words;
}

[[noreturn]] void refuse(std::string_view reply) {
  throw conn::Error("the server answered: " + std::string(reply.substr(0, 200)));
}

class Resp final : public Protocol {
 public:
  std::string request(std::string_view command, std::string_view value) const override {
    std::string bytes;
    kv::append_request(bytes, words_of(command, value));
    return bytes;
  }
  std::size_t reply_size(std::string_view bytes, std::string_view) const override {
    kv::ReplyParser parser;
    std::size_t size = 0;
    for (;;) {
      std::size_t used = 0;
      const auto result = parser.next(bytes.substr(size), used);
      size += used;
      if (result == kv::ReplyParser::Result::kError)
        throw conn::Error("bad reply: " + parser.error());
      if (result == kv::ReplyParser::Result::kReply) break;
      if (used == 0) return 0;
    }
    if (parser.reply().type == kv::Reply::Type::kError) refuse(parser.reply().text);
    return size;
  }
};

class Memcached final : public Protocol {
 public:
  std::string request(std::string_view command, std::string_view value) const override {
    std::vector<std::string> words = words_of(command, value);
    for (char& c : words[0]) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (words[0] == "set" && words.size() == 3) {
      return "set " + words[1] + " 0 0 " + std::to_string(words[2].size()) + "\r\n" + words[2] +
             "\r\n";
    }
    std::string bytes = words[0];
    for (std::size_t i = 1; i < words.size(); ++i) bytes += ' ' + words[i];
    return bytes + "\r\n";
  }

  // One line, or "VALUE key flags size", the value, and so on, up to "END".
  std::size_t reply_size(std::string_view bytes, std::string_view) const override {
    for (std::size_t at = 0;;) {
      const std::size_t end = bytes.find("\r\n", at);
      if (end == std::string_view::npos) return 0;
      const std::string_view line = bytes.substr(at, end - at);
      at = end + 2;
      if (line.find("ERROR") != std::string_view::npos) refuse(line);
      if (!line.starts_with("VALUE ")) return at;
      const std::string_view digits = line.substr(line.rfind(' ') + 1);
      std::size_t size = 0;
      if (std::from_chars(digits.data(), digits.data() + digits.size(), size).ec != std::errc()) {
        refuse(line);
      }
      at += size + 2;
      if (at > bytes.size()) return 0;
    }
  }
};

class Echo final : public Protocol {
 public:
  std::string request(std::string_view command, std::string_view value) const override {
    return std::string(command == "value" && !value.empty() ? value : command);
  }
  std::size_t reply_size(std::string_view bytes, std::string_view request) const override {
    if (bytes.size() < request.size()) return 0;
    if (!bytes.starts_with(request)) refuse(bytes);
    return request.size();
  }
};

class Frames final : public Protocol {
 public:
  std::string request(std::string_view command, std::string_view value) const override {
    const std::string_view payload = command == "value" && !value.empty() ? value : command;
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes += static_cast<char>(payload.size() >> shift);
    }
    return bytes.append(payload);
  }
  std::size_t reply_size(std::string_view bytes, std::string_view) const override {
    constexpr std::size_t kHeader = 4;
    if (bytes.size() < kHeader) return 0;
    std::size_t size = 0;
    for (const char byte : bytes.substr(0, kHeader)) {
      size = size << 8 | static_cast<unsigned char>(byte);
    }
    return bytes.size() - kHeader < size ? 0 : kHeader + size;
  }
};

void repeat_to(std::string& bytes, std::size_t size) {
  const std::string cycle = bytes;
  bytes.reserve(size + cycle.size());
  while (bytes.size() < size) bytes += cycle;
}

}  // namespace

std::unique_ptr<Protocol> make_protocol(std::string_view name) {
  if (name == "resp") return std::make_unique<Resp>();
  if (name == "memcached") return std::make_unique<Memcached>();
  if (name == "echo") return std::make_unique<Echo>();
  if (name == "frames") return std::make_unique<Frames>();
  throw conn::Error("there is no protocol \"" + std::string(name) +
                    "\"; known are resp, memcached, echo, frames");
}

void Script::add(const std::string& request, const std::string& reply) {
  request_sizes_.push_back(request.size());
  requests_ += request;
  replies_ += reply;
  reply_ends_.push_back(replies_.size());
}

void Script::repeat() {
  request_cycle_ = requests_.size();
  repeat_to(requests_, request_cycle_ + kPiece);
  repeat_to(replies_, reply_cycle() + kPiece);
}

}  // namespace load
