// SPDX-License-Identifier: BSD-3-Clause
#include "cli_pipe.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "programs/service/standard_streams.h"
#include "resp_parser.h"

namespace kv {
namespace {

/// Counts the requests in a stream of them, to know which reply is the last.
class RequestCount {
 public:
  void add(std::string_view bytes) {
    if (lost_) return;
    input_ += bytes;
    std::size_t at = 0;
    for (;;) {
      const auto result = parser_.next(std::string_view(input_).substr(at), kLimits);
      lost_ = result == RequestParser::Result::kError;
      if (result != RequestParser::Result::kRequest) break;
      at += parser_.size();
      if (!parser_.arguments().empty()) ++count_;
    }
    lost_ ? input_.clear() : static_cast<void>(input_.erase(0, at));
  }
  /// Nothing if the stream is not RESP: then the server decides where it ends.
  std::optional<std::size_t> count() const {
    return lost_ ? std::nullopt : std::optional<std::size_t>(count_);
  }

 private:
  static constexpr ParserLimits kLimits{std::numeric_limits<std::int64_t>::max(),
                                        std::numeric_limits<std::int64_t>::max(),
                                        std::numeric_limits<std::size_t>::max()};
  RequestParser parser_;
  std::string input_;
  std::size_t count_ = 0;
  bool lost_ = false;
};

struct PipeCount {
  RequestCount requests;  ///< ours, the last, is among them
  std::size_t replies = 0, errors = 0;
  std::string last;  ///< the mark that follows everything else
  std::string why;   ///< it will not come
  bool finished = false;

  bool over() const { return finished || !why.empty(); }

  void take(CliClient& client, bool all_sent) {
    for (Reply reply; !over() && client.poll(reply);) {
      if (reply.type == Reply::Type::kPush) continue;
      if (reply.type == Reply::Type::kBulk && reply.text == last) {
        finished = true;
        return;
      }
      ++replies;
      if (reply.type != Reply::Type::kError) continue;
      ++errors;
      service::print(conn::printable(reply.text) + '\n');
      if (reply.text.starts_with("NOAUTH")) why = "the server asks for a password (-a)";
      if (all_sent && requests.count() && *requests.count() == replies)
        why = "the server refused the ECHO that follows everything else";
    }
  }
};

}  // namespace

bool run_pipe(CliClient& client, ae::Duration patience) {
  constexpr std::size_t kMostUnsent = 1 << 20;
  PipeCount count;
  // Random, so that no value in the data is taken for it.
  std::random_device random;
  for (int i = 0; i < 5; ++i) count.last += fmt::format("{:08x}", random());
  const auto over = [&] { return count.over() || client.ended(); };
  const auto wait = [&](bool all_sent) {
    if (!client.step(patience))
      throw conn::Error(fmt::format("the server has been silent for {} s; errors: {}, replies: {}",
                                    std::chrono::duration<double>(patience).count(), count.errors,
                                    count.replies));
    count.take(client, all_sent);
  };

  std::vector<char> chunk(64 * 1024);
  while (!over()) {
    const std::size_t size = service::read_input(chunk.data(), chunk.size());
    if (size == 0) break;
    count.requests.add({chunk.data(), size});
    client.send({chunk.data(), size});
    client.step(false);
    count.take(client, false);
    while (client.unsent() > kMostUnsent && !over()) wait(false);
  }
  if (!over()) {
    // A line end first, as redis-cli does: it finishes an inline command without one.
    std::string mark = "\r\n";
    append_request(mark, {"ECHO", count.last});
    count.requests.add(mark);
    client.send(mark);
  }
  while (client.unsent() > 0 && !over()) wait(true);
  if (!over()) service::print("Everything is sent; the last reply is awaited.\n");
  while (!over()) wait(true);
  if (count.finished)
    service::print("The last reply is here.\n");
  else
    service::complain("kv-cli", count.why.empty() ? "the server closed the connection" : count.why);
  service::print(fmt::format("errors: {}, replies: {}\n", count.errors, count.replies));
  return count.finished && count.errors == 0;
}

}  // namespace kv
