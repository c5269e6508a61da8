// SPDX-License-Identifier: BSD-3-Clause
// Both sides of RESP: requests as kv-server reads them, replies as it writes and kv-cli reads them;
// and a session, which is all that kv-server does between a read and a write.

#include <string>
#include <string_view>

#include "bench/micro/cases.h"
#include "examples/kv_server/command.h"
#include "examples/kv_server/resp_reply.h"
#include "examples/kv_server/resp_text.h"
#include "examples/kv_server/session.h"

namespace micro {
namespace {

const std::string kGet = "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000001\r\n";
const std::string kSet =
    "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000001\r\n$64\r\n" + std::string(64, 'v') + "\r\n";

std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

/// Parses `input`, which arrives in pieces of `piece` bytes.
class Parsing {
 public:
  Parsing(std::string input, std::size_t requests, std::size_t piece)
      : input_(std::move(input)), requests_(requests), piece_(piece) {}

  void operator()() {
    std::size_t begin = 0, found = 0;
    for (std::size_t end = std::min(piece_, input_.size());;) {
      const std::string_view unread = std::string_view(input_).substr(begin, end - begin);
      const auto result = parser_.next(unread, limits_);
      if (result == kv::RequestParser::Result::kRequest) {
        keep(parser_.arguments());
        begin += parser_.size();
        if (++found == requests_) return;
      } else {
        require(result == kv::RequestParser::Result::kNeedMore && end < input_.size(),
                "a request was not understood");
        end = std::min(end + piece_, input_.size());
      }
    }
  }

 private:
  kv::RequestParser parser_;
  kv::ParserLimits limits_;
  std::string input_;
  std::size_t requests_, piece_;
};

auto parse(const std::string& input, std::size_t requests, std::size_t piece = 1 << 20) {
  return [=] { return Parsing(input, requests, piece); };
}

struct Conversation {
  explicit Conversation(std::string its_input)
      : server([]() -> std::int64_t { return 1'700'000'000'000'000; }),
        session(server, {"tcp", "10.0.0.1:1", "10.0.0.9:6379", 7}),
        input(std::move(its_input)) {
    session.feed(kSet);
    session.execute();
    session.consume_output(session.pending_output().size());
  }
  void operator()() {
    session.show(input);
    session.execute();
    require(!session.pending_output().starts_with('-'), "a command failed");
    session.consume_output(session.pending_output().size());
  }
  kv::Server server;
  kv::Session session;
  std::string input;
};

auto converse(const std::string& input) {
  return [input] {
    return [conversation = std::make_unique<Conversation>(input)] { (*conversation)(); };
  };
}

template <class Write>
auto write(Write write_one) {
  struct Out {
    kv::Buffer buffer;
    kv::ReplyWriter reply{buffer};
  };
  return [write_one] {
    return [out = std::make_unique<Out>(), write_one] {
      write_one(out->reply);
      keep(out->buffer.view());
      out->buffer.clear();
    };
  };
}

auto parse_reply(const std::string& text) {
  return [text] {
    return [parser = std::make_shared<kv::ReplyParser>(), text] {
      std::size_t used = 0;
      require(parser->next(text, used) == kv::ReplyParser::Result::kReply,
              "a reply was not understood");
      keep(parser->reply());
    };
  };
}

}  // namespace

void add_resp_cases(Cases& cases) {
  cases.add("request/GET", parse(kGet, 1));
  cases.add("request/SET of 64 B", parse(kSet, 1));
  cases.add("request/GET x 16", parse(repeat(kGet, 16), 16));
  cases.add("request/SET of 64 B x 16", parse(repeat(kSet, 16), 16));
  cases.add("request/SET of 64 B in pieces of 7", parse(kSet, 1, 7));
  cases.add("request/inline GET", parse("GET key:000000000001\r\n", 1));
  cases.add("reply/write a bulk of 64 B",
            write([value = std::string(64, 'v')](kv::ReplyWriter& reply) { reply.bulk(value); }));
  cases.add("reply/write an integer",
            write([](kv::ReplyWriter& reply) { reply.integer(1234567); }));
  cases.add("reply/write an array of 16 bulks of 64 B",
            write([value = std::string(64, 'v')](kv::ReplyWriter& reply) {
              reply.array(16);
              for (int i = 0; i < 16; ++i) reply.bulk(value);
            }));
  cases.add("reply/parse a bulk of 64 B", parse_reply("$64\r\n" + std::string(64, 'v') + "\r\n"));
  cases.add("reply/parse an integer", parse_reply(":1234567\r\n"));
  cases.add("reply/parse an array of 16 bulks",
            parse_reply("*16\r\n" + repeat("$5\r\nhello\r\n", 16)));
  cases.add("command/lookup of GET", [] {
    return [word = std::string_view("GET")] {
      keep(word);
      keep(kv::find_command({&word, 1}));
    };
  });
  cases.add("session/GET of 64 B", converse(kGet));
  cases.add("session/SET of 64 B", converse(kSet));
  cases.add("session/GET of 64 B x 16", converse(repeat(kGet, 16)));
  cases.add("session/SET of 64 B x 16", converse(repeat(kSet, 16)));
}

}  // namespace micro
