// SPDX-License-Identifier: BSD-3-Clause
// Goal: no bytes of a client make the server crash, hang, lose synchronization or hold memory that
// was only announced; and the results do not depend on the pieces. Method: the input is a client's
// stream, after a few bytes that select limits and cuts. One session gets the bytes in pieces and
// another one in one piece; both must answer alike. The answers are checked with the client's
// parser, and the request parser is also tested alone. Run by `make fuzz`, with the seeds in
// corpus/resp.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "examples/kv_server/resp_parser.h"
#include "examples/kv_server/resp_reply.h"
#include "examples/kv_server/session.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

std::int64_t g_now = 0;
std::int64_t fixed_clock() { return g_now; }

struct Setup {
  bool password = false, memory = false, small = false;
  std::uint32_t cuts = 1;  ///< seed of the cuts; 0: byte by byte
};

/// 1 to 64 bytes, mostly few, from a seed in the input.
std::size_t next_cut(std::uint32_t& state) {
  if (state == 0) return 1;
  state = state * 1664525u + 1013904223u;
  return state >> 30 == 0 ? 1 + (state >> 8) % 64 : 1 + (state >> 8) % 7;
}

bool mentions_any(std::string_view input, std::initializer_list<std::string_view> words) {
  std::string lower(input);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  for (const std::string_view word : words) {
    if (lower.find(word) != std::string::npos) return true;
  }
  return false;
}

/// False if replies depend on time or the session: then only their syntax is checked.
bool comparable(std::string_view input) {
  return !mentions_any(input, {"info", "client", "config", "hello"});
}

struct End {
  bool ended = false, killed = false;
};

/// `sent` is a copy: a session overwrites passwords in the requests it was shown.
std::string serve(std::string sent, Setup setup, bool cut, End& end) {
  const std::string_view input(sent);
  g_now = 1'700'000'000'000'000;
  kv::Server server(fixed_clock);
  if (setup.password) server.config.requirepass = "pw";
  if (setup.memory) server.config.maxmemory = 40'000;
  server.config.parser.bulk = 20'000;
  if (setup.small) {
    server.config.parser.bulk = 1000;
    server.config.parser.line = 100;
    server.config.parser.arguments = 50;
  }
  server.config.client_output_limit = 0;  // unsent bytes depend on the cuts
  bool stopped = false;
  server.together.request_shutdown = [&] { stopped = true; };

  std::string output;
  kv::Session other(server, {"tcp", "127.0.0.1:2", "127.0.0.1:1", 9});
  kv::Session session(server, {"tcp", "127.0.0.1:3", "127.0.0.1:1", 10});
  std::size_t fed = 0;
  while (!session.wants_close() && !session.killed()) {
    if (fed < input.size()) {
      const std::size_t size =
          cut ? std::min(next_cut(setup.cuts), input.size() - fed) : input.size();
      std::string_view piece = input.substr(fed, size);
      fed += size;
      if (cut) {  // like the network part
        const std::span<char> room = session.room();
        const std::size_t there = std::min(room.size(), piece.size());
        std::copy_n(piece.data(), there, room.data());
        if (there != 0) session.arrived(there);
        piece.remove_prefix(there);
        session.show(piece);
      } else {
        session.feed(piece);
      }
    }
    kv::Session::Progress progress;
    do {
      progress = session.execute(cut ? 3 : 1000);
      if (progress == kv::Session::Progress::kHeld) g_now += 5'000'000;
      const std::string_view pending = session.pending_output();
      const std::size_t taken = cut && pending.size() > 1 ? pending.size() / 2 : pending.size();
      output += pending.substr(0, taken);
      session.consume_output(taken);
    } while (progress == kv::Session::Progress::kMore || progress == kv::Session::Progress::kHeld);
    if (fed == input.size()) break;
  }
  output += session.pending_output();
  session.consume_output(session.pending_output().size());
  end = {session.wants_close() || session.killed(), session.killed()};
  // Memory is proportional to the input, except for values that commands lengthen, which have
  // limits.
  require(server.buffer_bytes <= 8 * input.size() + 4 * output.size() + (4 << 20));
  require(!session.describe().empty());
  session.shrink();
  g_now += 3600'000'000;
  server.tick();
  return output;
}

/// The server's output must be RESP: each byte belongs to a reply.
void check_replies(std::string_view output, bool complete) {
  kv::ReplyParser parser;
  while (!output.empty()) {
    std::size_t used = 0;
    const auto result = parser.next(output, used);
    require(result != kv::ReplyParser::Result::kError);
    output.remove_prefix(used);
    if (result == kv::ReplyParser::Result::kNeedMore) {
      require(!complete);
      return;
    }
    (void)kv::format_reply(parser.reply());
  }
}

/// The parser alone, with a buffer that moves between calls and ends with its bytes. In pieces,
/// incomplete arguments are taken out of the buffer.
std::string parse(std::string_view input, Setup setup, bool cut) {
  kv::ParserLimits limits;
  if (setup.small) limits = {1000, 50, 100};
  kv::RequestParser parser;
  std::string out, unread(cut ? std::string_view() : input), outside;
  std::size_t fed = unread.size(), missing = 0;
  for (;;) {
    const std::vector<char> exact(unread.begin(), unread.end());
    const std::string_view view(exact.data(), exact.size());
    const auto result = missing != 0 ? kv::RequestParser::Result::kNeedMore
                                     : parser.next(view, limits, !setup.password);
    if (result == kv::RequestParser::Result::kError) return out + parser.error();
    if (result == kv::RequestParser::Result::kRequest) {
      require(parser.size() >= 1 && parser.size() <= view.size());
      for (const std::string_view argument : parser.arguments()) {
        require(argument.size() <= view.size() || argument.data() == outside.data());
        out += '[' + std::string(argument) + ']';
      }
      out += '\n';
      unread.erase(0, parser.size());
      continue;
    }
    if (cut && missing == 0 && parser.large() > unread.size() - parser.size()) {
      require(parser.key_of_large(view).size() <= view.size());
      outside = unread.substr(parser.size());
      missing = parser.large() - outside.size();
      unread.resize(parser.size());
      parser.take_out();
    }
    if (fed == input.size()) return out;
    const std::size_t size = std::min(next_cut(setup.cuts), input.size() - fed);
    const std::size_t there = std::min(missing, size);
    outside += input.substr(fed, there);
    missing -= there;
    if (there != 0) parser.moved_to(outside.data());
    unread += input.substr(fed + there, size - there);
    fed += size;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  Setup setup;
  setup.password = (data[0] & 1) != 0;
  setup.memory = (data[0] & 2) != 0;
  setup.small = (data[0] & 4) != 0;
  setup.cuts = data[1];
  const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);

  if (mentions_any(input, {"proto-max"})) return 0;  // half a gigabyte was asked for

  require(parse(input, setup, true) == parse(input, setup, false));

  End end_cut, end_whole;
  const std::string cut = serve(std::string(input), setup, true, end_cut);
  const std::string whole = serve(std::string(input), setup, false, end_whole);
  // A session beyond an output limit, which it may have set itself, is cut off within a reply.
  check_replies(whole, !end_whole.killed);
  check_replies(cut, !end_cut.killed);
  // Memory limits depend on buffers, and buffers on the pieces.
  if (!setup.memory && comparable(input)) {
    require(cut == whole);
    require(end_cut.ended == end_whole.ended);
  }
  return 0;
}
