// SPDX-License-Identifier: BSD-3-Clause
// A client of rpc_server.cc: docs/rpc.md explains it. It sends its arguments as requests, eight at
// a time, and prints the answers. A pool keeps its connections: when the server has been started
// again, it goes on.
//
//   ./rpc_client tcp://127.0.0.1:7000 hello "sleep 1000"
#include <array>
#include <chrono>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "ae/libev_loop.h"
#include "conn/co.h"
#include "conn/transports/transports.h"
#include "rpc.h"

namespace co = conn::co;
using namespace std::chrono_literals;

constexpr auto kDeadline = 10s;

/// One attempt on one connection. Returns false if the connection failed.
co::Task<bool> attempt(co::Stream& server, const std::string& request, ae::Duration left,
                       std::string& answer) {
  static std::uint32_t last = 0;  // all calls are on one thread
  const rpc::Header asked{
      static_cast<std::uint32_t>(request.size()), ++last,
      static_cast<std::uint32_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count())};
  std::string frame;
  rpc::append(frame, asked, request);
  if (!co_await server.write(frame, left)) co_return false;
  std::array<char, rpc::kHeader> header;
  if (!co_await server.read_exactly(header, left)) co_return false;
  const rpc::Header got = rpc::header_of({header.data(), header.size()});
  if (got.id != asked.id || got.size > rpc::kLargest) co_return false;
  answer.resize(got.size);
  if (!co_await server.read_exactly(answer, left)) co_return false;
  if (got.info == rpc::kTooLate) answer = "(too late)";
  co_return true;
}

/// Asks until there is an answer, or the deadline is over. A request whose connection is lost may
/// have been worked on: only requests that may be repeated are asked again like this.
co::Task<std::string> call(ae::EventLoop& loop, co::Pool& pool, std::string request) {
  const ae::TimePoint deadline = loop.now() + kDeadline;
  for (;;) {
    const ae::Duration left = deadline - loop.now();
    if (left <= 0s) co_return "(no answer)";
    co::Pool::Lease server = co_await pool.acquire(left);
    if (!server) co_return "(" + server.failure().text + ")";
    std::string answer;
    const bool answered = co_await attempt(*server, request, deadline - loop.now(), answer);
    if (answered) server.give_back();  // otherwise the pool dials another connection
    if (answered) co_return answer;
  }
}

co::Task<> ask(ae::EventLoop& loop, co::Pool& pool, std::string request, co::Semaphore::Permit,
               co::WaitGroup::Member) {
  const std::string answer = co_await call(loop, pool, std::move(request));
  std::cout << answer << std::endl;
}

co::Task<> ask_all(ae::EventLoop& loop, co::Pool& pool, co::Scope& calls,
                   std::vector<std::string> requests) {
  co::Semaphore places(loop, 8);
  co::WaitGroup asking(loop);
  for (std::string& request : requests) {
    co::Semaphore::Permit place = co_await places.acquire();
    calls.spawn(ask(loop, pool, std::move(request), std::move(place), asking.join()));
  }
  (void)co_await asking.wait();
  loop.stop();
}

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("usage: rpc_client URL REQUEST...");
  const conn::Registry registry = conn::all_transports();  // must outlive the loop
  ae::LibevLoop loop;
  co::Pool pool(registry, loop, conn::Endpoint::parse(argv[1]));
  co::Scope scope;  // declared after all that its tasks use: destroyed first
  scope.spawn(ask_all(loop, pool, scope, {argv + 2, argv + argc}));
  loop.run();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
