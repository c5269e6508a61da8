// That the kv-server replies as redis-server 7.0.15 did in a recorded run, byte for byte.

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "examples/kv_server/session.h"
#include "tests/support/catch.h"

namespace {

constexpr const char* kRecorded = "tests/recorded/redis-7.0.txt";
constexpr std::size_t kExchanges = 485;

struct Exchange {
  std::string command, reply;
};

std::string unescape(std::string_view text) {
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

std::vector<Exchange> recorded() {
  std::ifstream file(kRecorded);
  INFO(kRecorded << ": tests run in the folder of the tree");
  REQUIRE(file);
  std::vector<Exchange> all;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    if (!line.starts_with("=>"))
      all.push_back({unescape(line), {}});
    else if (line.size() > 3)
      all.back().reply = unescape(std::string_view(line).substr(3));
  }
  REQUIRE(all.size() == kExchanges);
  return all;
}

std::int64_t fixed_clock() { return 1'700'000'000'000'000; }

std::string expand(std::string_view text) {
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

std::string encode(std::string_view line) {
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

}  // namespace

TEST_CASE("kv-server answers as redis-server 7.0 does", "[kv]") {
  kv::Server server(fixed_clock);
  kv::Session session(server, {"tcp", "127.0.0.1:1000", "127.0.0.1:6379", 5});
  for (const Exchange& exchange : recorded()) {
    INFO(exchange.command);
    session.feed(encode(expand(exchange.command)));
    session.execute();
    if (!exchange.reply.empty()) REQUIRE(session.pending_output() == expand(exchange.reply));
    session.consume_output(session.pending_output().size());
  }
}
