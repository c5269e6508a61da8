// SPDX-License-Identifier: BSD-3-Clause
#include "cli_pipe.h"

#include <fmt/format.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "programs/service/standard_streams.h"

namespace kv {
namespace {

struct PipeCount {
  std::size_t replies = 0, errors = 0;
  std::string last;  ///< the text that the last reply repeats
  std::string why;   ///< the reason why that reply will not come
  bool finished = false;

  bool over() const { return finished || !why.empty(); }

  void take(CliClient& client) {
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
    }
  }
};

}  // namespace

bool run_pipe(CliClient& client, ae::Duration patience) {
  constexpr std::size_t kMostUnsent = 1 << 20;
  PipeCount count;
  // Random, so that no value in the data is mistaken for it.
  std::random_device random;
  for (int i = 0; i < 5; ++i) count.last += fmt::format("{:08x}", random());
  const auto over = [&] { return count.over() || client.ended(); };
  const auto wait = [&] {
    if (!client.step(patience))
      throw conn::Error(fmt::format("the server has been silent for {} s; errors: {}, replies: {}",
                                    std::chrono::duration<double>(patience).count(), count.errors,
                                    count.replies));
    count.take(client);
  };

  std::vector<char> chunk(64 * 1024);
  while (!over()) {
    const std::size_t size = service::read_input(chunk.data(), chunk.size());
    if (size == 0) break;
    client.send({chunk.data(), size});
    client.step(false);
    count.take(client);
    while (client.unsent() > kMostUnsent && !over()) wait();
  }
  if (!over()) {
    // The line end before it finishes an inline command that has none, as in redis-cli.
    std::string mark = "\r\n";
    append_request(mark, {"ECHO", count.last});
    client.send(mark);
  }
  while (client.unsent() > 0 && !over()) wait();
  if (!over()) service::print("Everything is sent; the last reply is awaited.\n");
  while (!over()) wait();
  if (count.finished)
    service::print("The last reply is here.\n");
  else
    service::complain("kv-cli", count.why.empty() ? "the server closed the connection" : count.why);
  service::print(fmt::format("errors: {}, replies: {}\n", count.errors, count.replies));
  return count.finished && count.errors == 0;
}

}  // namespace kv
