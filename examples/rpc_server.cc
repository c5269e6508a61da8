// SPDX-License-Identifier: BSD-3-Clause
// An RPC server on several loops: docs/rpc.md explains it. A request is any text, which comes back
// in capitals; "sleep MILLISECONDS" takes that long. SIGTERM and SIGINT stop it gracefully.
//
//   ./rpc_server tcp://127.0.0.1:7000 4
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "ae/loop_group.h"
#include "conn/co.h"
#include "conn/listener_group.h"
#include "conn/stop.h"
#include "conn/transports/transports.h"
#include "rpc.h"

namespace co = conn::co;
using namespace std::chrono_literals;

constexpr std::size_t kCalls = 1000;      // requests of one connection that are worked on at a time
constexpr std::size_t kUnsent = 1 << 20;  // bytes of unread answers until no request is read

/// The service itself: replace this.
co::Task<std::string> handle(ae::EventLoop& loop, std::string request) {
  if (request.starts_with("sleep "))
    co_await co::sleep(loop, std::chrono::milliseconds(std::atoi(request.c_str() + 6)));
  for (char& each : request)
    if (each >= 'a' && each <= 'z') each = static_cast<char>(each - 'a' + 'A');
  co_return request;
}

/// Sends the answers of one connection: all that are ready in one iteration, with one write.
class Answers {
 public:
  explicit Answers(ae::EventLoop& loop) : loop_(loop), ready_(loop), room_(loop) { room_.set(); }

  void add(std::uint32_t id, rpc::Status status, std::string_view text) {
    rpc::append(waiting_, {static_cast<std::uint32_t>(text.size()), id, status}, text);
    if (waiting_.size() >= kUnsent) room_.reset();
    ready_.set();
  }
  /// Waits while the peer does not read.
  auto room() { return room_.wait(60s); }
  void close() {
    closed_ = true;
    ready_.set();
  }
  /// Returns after close(), when everything is sent, or when the peer does not read for a minute.
  co::Task<> send(co::Stream& peer, co::WaitGroup::Member) {
    std::string sending;
    while (co_await ready_.wait()) {
      co_await co::yield(loop_);  // tasks that are about to add an answer do it now
      ready_.reset();
      sending.clear();
      sending.swap(waiting_);
      room_.set();
      const co::Result sent = co_await peer.write(sending, 60s);
      if (!sent || (closed_ && waiting_.empty())) co_return;
    }
  }

 private:
  ae::EventLoop& loop_;
  co::Event ready_, room_;
  std::string waiting_;
  bool closed_ = false;
};

/// One request: its answer comes before its client's deadline, or is that it is too late.
co::Task<> answer(ae::EventLoop& loop, rpc::Header header, std::string request, Answers& to,
                  co::Semaphore::Permit, co::WaitGroup::Member) {
  const auto done = co_await co::first(handle(loop, std::move(request)),
                                       co::sleep(loop, std::chrono::milliseconds(header.info)));
  if (done.index() == 0)
    to.add(header.id, rpc::kOk, std::get<0>(done));
  else
    to.add(header.id, rpc::kTooLate, "");
}

/// Reads all requests that have arrived, and works on them concurrently.
co::Task<> serve(co::Stream peer) {
  ae::EventLoop& loop = *peer->loop();
  Answers answers(loop);
  co::Semaphore calls(loop, kCalls);
  co::WaitGroup working(loop), sending(loop);
  co::Scope tasks;  // declared after all that its tasks use: destroyed first
  tasks.spawn(answers.send(peer, sending.join()));
  std::size_t wanted = 0;  // bytes of a frame that has arrived in part
  while (const co::Peeked arrived = co_await peer.next_request(60s)) {
    const co::Peeked whole = co_await peer.peek(wanted, 10s);  // at once, unless in part
    if (!whole) break;
    const std::string_view bytes = whole.first();
    std::size_t used = 0;
    for (wanted = rpc::kHeader; bytes.size() - used >= wanted; wanted = rpc::kHeader) {
      const rpc::Header header = rpc::header_of(bytes.substr(used));
      if (header.size > rpc::kLargest) co_return;  // no client of ours
      wanted += header.size;
      if (bytes.size() - used < wanted) break;
      std::string request(bytes.substr(used + rpc::kHeader, header.size));
      co::Semaphore::Permit permit = co_await calls.acquire();
      tasks.spawn(
          answer(loop, header, std::move(request), answers, std::move(permit), working.join()));
      used += wanted;
    }
    peer.consume(used);
    if (!co_await answers.room()) co_return;
  }
  (void)co_await working.wait();  // what has begun is answered, also when the server stops
  answers.close();
  (void)co_await sending.wait();
}

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: rpc_server URL LOOPS");
  const conn::Registry registry = conn::all_transports();  // must outlive the loops
  ae::LoopGroup loops({.loops = std::stoul(argv[2])});
  conn::Stop stop(loops, {.limit = 10s});
  auto listener = conn::listen(
      registry, loops, argv[1], stop.keep([](ae::EventLoop&, std::size_t) -> conn::AcceptHandler {
        return [sessions = std::make_shared<co::Scope>()](conn::ConnectionPtr peer) {
          sessions->spawn(serve(std::move(peer)));
        };
      }));
  for (const auto& at : listener->endpoints()) std::cout << at.to_string() << std::endl;
  stop.add(std::move(listener));
  loops.run();
  return stop.status();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
