// SPDX-License-Identifier: BSD-3-Clause
// Unit tests of adapters/asio.h: reads and writes, gathering, cancellation, time-outs, executors,
// allocators, coroutines, the end of a context. For the arguments see tests/adapters/asio_kit.h.

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/adapters/asio_kit.h"
#ifdef WITH_SSL
#include "tests/adapters/asio_over_ssl.h"
#endif

#ifdef AECONN_BOOST_ASIO
#ifdef BOOST_ASIO_HAS_CO_AWAIT
#define HAS_COROUTINES
#endif
#if AECONN_ASIO_VERSION >= 102000
#include <boost/asio/experimental/parallel_group.hpp>
#ifdef HAS_COROUTINES
#include <boost/asio/experimental/awaitable_operators.hpp>
#endif
#endif
#else
#ifdef ASIO_HAS_CO_AWAIT
#define HAS_COROUTINES
#endif
#if AECONN_ASIO_VERSION >= 102000
#include <asio/experimental/parallel_group.hpp>
#ifdef HAS_COROUTINES
#include <asio/experimental/awaitable_operators.hpp>
#endif
#endif
#endif

#include "tests/adapters/asio_ends.h"

using namespace asio_kit;
using namespace std::chrono_literals;

namespace {

const Error kAborted = net::error::operation_aborted;

/// Writes until a write has to wait, since the peer does not read; `begin` starts a write.
template <class Begin>
void fill(Bed& bed, Result& result, const Begin& begin) {
  static const std::string block = bytes(1 << 20);
  doing = "a write that waits";
  do {
    result = {};
    begin(net::buffer(block));
    for (int i = 0; i < 20 && !result; ++i) bed.context.poll();
  } while (result);
}

void transfers(Bed& bed) {
  auto both = bed.connect();
  aio::Stream &client = both.client, &server = both.server;
  const std::string sent = bytes(1 << 20), back = bytes(1 << 20, 3);
  std::string there(sent.size(), '\0'), here(back.size(), '\0');
  Result read_there, read_here, wrote, wrote_back;
  net::async_write(client, net::buffer(sent), wrote.handler());
  net::async_write(server, net::buffer(back), wrote_back.handler());
  net::async_read(server, net::buffer(there), read_there.handler());
  net::async_read(client, net::buffer(here), read_here.handler());
  check(!wrote && !read_there, "no handler inside the call that begins it");
  bed.until("1 MiB both ways", [&] { return wrote && wrote_back && read_there && read_here; });
  check(!*wrote.error && !*read_there.error && there == sent && here == back, "1 MiB both ways");

  // More buffers than one system call takes, including empty ones.
  std::vector<std::string> parts;
  std::vector<net::const_buffer> gathered;
  std::string whole;
  for (std::size_t i = 0; i < 300; ++i) parts.push_back(bytes(i % 5 * 11, i));
  for (const std::string& part : parts) {
    gathered.push_back(net::buffer(part));
    whole += part;
  }
  there.assign(whole.size(), '\0');
  Result gather, scatter;
  net::async_write(client, gathered, gather.handler());
  net::async_read(server,
                  std::array<net::mutable_buffer, 3>{
                      net::buffer(there.data(), 100), net::buffer(there.data(), 0),
                      net::buffer(there.data() + 100, there.size() - 100)},
                  scatter.handler());
  bed.until("300 buffers", [&] { return gather && scatter; });
  check(gather.size == whole.size() && there == whole, "300 buffers, gathered and scattered");

  // One call takes several buffers.
  const std::string a = "one ", b = "and another";
  Result some, got;
  client.async_write_some(std::array<net::const_buffer, 2>{net::buffer(a), net::buffer(b)},
                          some.handler());
  bed.until("a gathered write", &some);
  check(some.size == a.size() + b.size(), "one write takes several buffers");
  there.assign(some.size, '\0');
  net::async_read(server, net::buffer(there), got.handler());
  bed.until("a gathered write's bytes", &got);
  check(there == a + b, "in their order");

  Result nothing;
  client.async_read_some(net::mutable_buffer(), nothing.handler());
  check(!nothing, "a read of nothing does not end inside its call");
  bed.until("a read of nothing", &nothing);
  check(!*nothing.error && nothing.size == 0, "a read of nothing waits for nothing");

  // While other operations wait: asio::ssl reads nothing to complete operations that need no bytes.
  Result waits, full, no_read, no_write;
  std::array<net::mutable_buffer, 2> no_room{};
  client.async_read_some(net::buffer(there), waits.handler());
  client.async_read_some(no_room, no_read.handler());
  check(!no_read, "a read of nothing beside another does not end inside its call");
  fill(bed, full, [&](auto block) { client.async_write_some(block, full.handler()); });
  client.async_write_some(net::const_buffer(), no_write.handler());
  check(!no_write, "a write of nothing beside another does not end inside its call");
  bed.until("nothing, beside others", [&] { return no_read && no_write; });
  check(!*no_read.error && !*no_write.error && no_read.size == 0 && no_write.size == 0 && !waits &&
            !full,
        "nothing is read and written beside others");
  both = bed.connect();

  // Several reads, and a handler that is kept and used twice.
  std::array<char, 3> first{}, second{};
  int done = 0;
  const auto kept = [&done, marker = std::make_shared<int>(1)](Error error, std::size_t) {
    if (!error && marker != nullptr) ++done;
  };
  server.async_read_some(net::buffer(first), kept);
  server.async_read_some(net::buffer(second), kept);
  net::async_write(client, net::buffer("abcdef", 6), wrote.handler());
  bed.until("two reads at a time", [&] { return done == 2; });
  check(std::string(first.data(), 3) + std::string(second.data(), 3) == "abcdef",
        "several reads are served in their order, and a handler that is kept is copied");

  // The stream is moved while an operation waits.
  Result moved;
  server.async_read_some(net::buffer(first), moved.handler());
  aio::Stream elsewhere = std::move(server);
  net::async_write(client, net::buffer("xyz", 3), wrote.handler());
  bed.until("a read of a stream that moved", &moved);
  check(moved.size == 3 && first[0] == 'x', "a stream may move while an operation waits");

  Result end, beyond;
  client.close();
  elsewhere.async_read_some(net::buffer(first), end.handler());
  bed.until("the end", &end);
  check(end.is(net::error::eof), "the end of a stream is eof");
  client.async_read_some(net::buffer(first), beyond.handler());
  bed.until("a read of a closed stream", &beyond);
  check(beyond.is(net::error::bad_descriptor) && !client.is_open(), "a closed stream says so");
}

void cancels(Bed& bed) {
  std::array<char, 16> room{};
  auto both = bed.connect();
  aio::Stream &client = both.client, &server = both.server;
  Result read, write;
  client.async_read_some(net::buffer(room), read.handler());
  fill(bed, write, [&](auto block) { client.async_write_some(block, write.handler()); });
  client.cancel();
  check(!read && !write, "no handler inside cancel()");
  bed.until("cancel()", [&] { return read && write; });
  check(read.is(kAborted) && write.is(kAborted), "cancel() ends reads and writes");
  Result again;
  net::async_write(server, net::buffer("again", 5), [](Error, std::size_t) {});
  client.async_read_some(net::buffer(room), again.handler());
  bed.until("a read after cancel()", &again);
  check(again.size == 5, "a stream serves after cancel()");

  Result closed, gone;
  client.async_read_some(net::buffer(room), closed.handler());
  client.close();
  bed.until("close()", &closed);
  check(closed.is(kAborted), "close() cancels");
  {
    auto pair = bed.connect();
    pair.client.async_read_some(net::buffer(room), gone.handler());
  }
  bed.until("the end of a stream", &gone);
  check(gone.is(kAborted), "the end of a stream cancels");

  Result waits, cut;
  {
    auto pair = bed.connect();
    const bool resets =
        bed.registry.require(conn::Endpoint::parse(bed.url()).scheme).capabilities().reset;
    pair.client.async_read_some(net::buffer(room), waits.handler());
    pair.server.async_read_some(net::buffer(room), cut.handler());
    pair.client.abort();
    check(!waits && !pair.client.is_open(), "abort() closes, and no handler runs inside it");
    bed.until("abort()", [&] { return waits && cut; });
    check(waits.is(kAborted), "abort() cancels");
    check(cut.is(resets ? Error(net::error::connection_reset) : Error(net::error::eof)),
          "the peer of an abort() sees an error", cut.error->message());
  }

  Result connect;
  aio::Stream fresh(bed.context);
  fresh.async_connect(bed.registry, bed.loop, bed.url(), connect.handler());
  fresh.cancel();
  bed.until("a connect that is cancelled", &connect);
  check(connect.is(kAborted) && !fresh.is_open(), "a connect is cancelled");

  Result accept;
  aio::Acceptor other(bed.context.get_executor(), bed.registry, bed.loop, bed.elsewhere());
  other.async_accept([&](Error error, aio::Stream stream) {
    accept.error = error;
    if (stream.is_open()) check(false, "no stream where an accept fails");
  });
  other.cancel();
  bed.until("an accept that is cancelled", &accept);
  check(accept.is(kAborted), "an accept is cancelled");
  accept = {};
  other.close();
  other.async_accept([&](Error error, aio::Stream) { accept.error = error; });
  bed.until("an accept after close()", &accept);
  check(accept.is(net::error::bad_descriptor) && other.endpoints().empty(),
        "an acceptor that was closed says so");

  // A time-out in asio's usual way.
  auto pair = bed.connect();
  Result late;
  net::steady_timer timer(bed.context, 1ms);
  timer.async_wait([&](Error) { pair.client.cancel(); });
  pair.client.async_read_some(net::buffer(room), late.handler());
  bed.until("a time-out", &late);
  check(late.is(kAborted), "a timer and cancel() are a time-out");
}

#if AECONN_ASIO_VERSION >= 102000
void slots(Bed& bed) {
  std::array<char, 16> room{};
  const auto kinds = {net::cancellation_type::terminal, net::cancellation_type::partial,
                      net::cancellation_type::total};
  auto both = bed.connect();
  aio::Stream &client = both.client, &server = both.server;
  Result stays, write;
  for (const auto kind : kinds) {
    net::cancellation_signal signal;
    Result read, connect, accept;
    server.async_read_some(net::buffer(room),
                           net::bind_cancellation_slot(signal.slot(), read.handler()));
    signal.emit(net::cancellation_type::none);
    bed.context.poll();
    check(!read, "no kind of cancellation cancels nothing");
    signal.emit(kind);
    check(!read, "no handler inside emit()");
    bed.until("a read's slot", &read);
    check(read.is(kAborted) && !signal.slot().has_handler(), "a read's slot, which is empty then");

    fill(bed, write, [&](auto block) {
      server.async_write_some(block, net::bind_cancellation_slot(signal.slot(), write.handler()));
    });
    signal.emit(kind);
    bed.until("a write's slot", &write);
    check(write.is(kAborted) && server.is_open(), "a write's slot");

    aio::Stream fresh(bed.context);
    fresh.async_connect(bed.registry, bed.loop, bed.url(),
                        net::bind_cancellation_slot(signal.slot(), connect.handler()));
    signal.emit(kind);
    bed.until("a connect's slot", &connect);
    check(connect.is(kAborted) && !fresh.is_open(), "a connect's slot");

    aio::Acceptor other(bed.context.get_executor(), bed.registry, bed.loop, bed.elsewhere());
    other.async_accept(net::bind_cancellation_slot(
        signal.slot(), [&](Error error, aio::Stream) { accept.error = error; }));
    signal.emit(kind);
    bed.until("an accept's slot", &accept);
    check(accept.is(kAborted) && other.is_open(), "an accept's slot");
  }

  // Cancels one of two operations; and one that is already complete.
  net::cancellation_signal one, two;
  Result first, second;
  std::array<char, 16> more{};
  server.async_read_some(net::buffer(room),
                         net::bind_cancellation_slot(one.slot(), first.handler()));
  server.async_read_some(net::buffer(more),
                         net::bind_cancellation_slot(two.slot(), second.handler()));
  one.emit(net::cancellation_type::total);
  net::async_write(client, net::buffer("x", 1), [](Error, std::size_t) {});
  bed.until("one of two", [&] { return first && second; });
  check(first.is(kAborted) && second.size == 1, "a slot cancels its own operation");
  two.emit(net::cancellation_type::total);
  Result late;
  net::async_write(client, net::buffer("y", 1), stays.handler());
  bed.until("a write", &stays);
  server.async_read_some(net::buffer(room),
                         net::bind_cancellation_slot(two.slot(), late.handler()));
  two.emit(net::cancellation_type::none);
  bed.until("a read that was served", &late);
  check(late.size == 1, "a signal of before cancels nothing");

  // A composed operation passes its slot on.
  Result composed;
  net::async_read(server, net::buffer(room),
                  net::bind_cancellation_slot(one.slot(), composed.handler()));
  net::async_write(client, net::buffer("abc", 3), [](Error, std::size_t) {});
  bed.until("a part", [&] { return room[2] == 'c'; });
  bed.context.poll();
  one.emit(net::cancellation_type::partial);
  bed.until("a composed read's slot", &composed);
  check(composed.is(kAborted) && composed.size == 3, "a composed read is cancelled after a part");

  // The first to complete cancels the other.
  net::steady_timer timer(bed.context, 1ms);
  bool over = false;
  net::experimental::make_parallel_group(
      [&](auto token) { return server.async_read_some(net::buffer(room), std::move(token)); },
      [&](auto token) { return timer.async_wait(std::move(token)); })
      .async_wait(net::experimental::wait_for_one(),
                  [&](std::array<std::size_t, 2> order, Error read, std::size_t, Error waited) {
                    check(order[0] == 1 && read == kAborted && !waited,
                          "a parallel group's timer cancels the read");
                    over = true;
                  });
  bed.until("a parallel group", &over);
}
#endif

/// Counts allocations, and how many of them exist when the handler runs.
template <class T>
struct Counting {
  using value_type = T;
  explicit Counting(std::array<int, 2>* its) : counts(its) {}
  template <class Other>
  Counting(const Counting<Other>& other) : counts(other.counts) {}
  T* allocate(std::size_t count) {
    ++(*counts)[0], ++(*counts)[1];
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* memory, std::size_t count) {
    --(*counts)[1];
    std::allocator<T>().deallocate(memory, count);
  }
  bool operator==(const Counting& other) const = default;
  std::array<int, 2>* counts;
};
struct Allocates {
  using allocator_type = Counting<char>;
  allocator_type get_allocator() const noexcept { return allocator_type(counts); }
  void operator()(Error, std::size_t) const { *left = (*counts)[1]; }
  std::array<int, 2>* counts;
  std::optional<int>* left;
};

void associations(Bed& bed) {
  auto both = bed.connect();
  aio::Stream &client = both.client, &server = both.server;
  std::array<char, 4> room{};
  const auto strand = net::make_strand(bed.context.get_executor());
  std::optional<bool> inside;
  server.async_read_some(net::buffer(room), net::bind_executor(strand, [&](Error, std::size_t) {
                           inside = strand.running_in_this_thread();
                         }));
  net::async_write(client, net::buffer("a", 1), [](Error, std::size_t) {});
  bed.until("a handler on a strand", &inside);
  check(*inside, "a handler runs where its executor says");
  inside.reset();
  client.async_write_some(net::buffer(room), net::bind_executor(strand, [&](Error, std::size_t) {
                            inside = strand.running_in_this_thread();
                          }));
  bed.until("another handler on a strand", &inside);
  check(*inside, "also where nothing had to wait");

  net::thread_pool pool(1);
  std::optional<std::thread::id> where;
  server.async_read_some(net::buffer(room), [](Error, std::size_t) {});
  client.async_read_some(net::buffer(room),
                         net::bind_executor(pool.get_executor(), [&](Error, std::size_t) {
                           const auto here = std::this_thread::get_id();
                           net::post(bed.context, [&where, here] { where = here; });
                         }));
  net::async_write(server, net::buffer("b", 1), [](Error, std::size_t) {});
  bed.until("a handler on another thread", &where);
  check(*where != std::this_thread::get_id(), "a handler runs on the thread of its executor");
  pool.join();

  std::array<int, 2> counts{};
  std::optional<int> left;
  server.async_read_some(net::buffer(room), Allocates{&counts, &left});
  check(counts[0] > 0, "a read that waits has memory of its handler's allocator");
  const int waiting = counts[1];
  net::async_write(client, net::buffer("c", 1), [](Error, std::size_t) {});
  bed.until("a handler with an allocator", &left);
  check(*left < waiting || *left == 0, "which is free again when the handler runs");
  check(counts[1] == 0, "all of it");
}

void failures(Bed& bed) {
  const auto fails_with = [&](const conn::Registry& registry, const std::string& url) {
    aio::Stream stream(bed.context);
    Result result;
    stream.async_connect(registry, bed.loop, url, result.handler());
    check(!result, "a connect does not fail inside its call");
    bed.until("a connect that fails", &result);
    return std::pair(*result.error, stream.last_error());
  };
  const auto fails = [&](const std::string& url) { return fails_with(bed.registry, url); };
  const auto [wrong, sentence] = fails("nothing://x:1");
  check(
      wrong == Error(net::error::invalid_argument) && sentence.find("nothing") != std::string::npos,
      "a URL that cannot be", sentence);
  const auto [option, which] = fails("tcp://127.0.0.1:1?no-such=1");
  check(option == Error(net::error::invalid_argument) && which.find("no-such") != std::string::npos,
        "an option that is none", which);
  conn::Registry poor;
  poor.add_unavailable("absent", "the build lacks it");
  const auto [absent, reason] = fails_with(poor, "absent://x:1");
  check(absent.value() == EPROTONOSUPPORT && reason.find("lacks it") != std::string::npos,
        "a transport that the build lacks", reason);
  const auto [refused, why] = fails("tcp://127.0.0.1:1");
  check(refused == Error(net::error::connection_refused) && !why.empty(), "nobody listens",
        refused.message());

  bool thrown = false;
  try {
    aio::Acceptor twice(bed.context.get_executor(), bed.registry, bed.loop, "nothing://x:1");
  } catch (const conn::Error&) {
    thrown = true;
  }
  check(thrown, "an acceptor that cannot be throws");

  auto both = bed.connect();
  aio::Stream& client = both.client;
  Error error;
  client.shutdown(error);
  const bool half = client.connection()->type().capabilities().half_close;
  check(half ? !error : error == Error(net::error::operation_not_supported), "a half-close",
        error.message());
  const conn::ConnectionPtr taken = client.release();
  check(taken != nullptr && !client.is_open() && !taken->has_read_handler(), "release()");
  client.shutdown(error);
  check(error == Error(net::error::bad_descriptor), "a half-close of nothing");
}

/// More connections than accepts.
void crowds(Bed& bed) {
  std::vector<std::unique_ptr<aio::Stream>> clients;
  int connected = 0, accepted = 0;
  std::vector<aio::Stream> served;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<aio::Stream>(bed.context));
    clients.back()->async_connect(bed.registry, bed.loop, bed.url(), [&](Error error) {
      if (error) check(false, "one of many connects", error.message());
      ++connected;
    });
  }
  for (int i = 0; i < 50; ++i) bed.context.poll();
  const std::function<void()> accept = [&] {
    bed.acceptor.async_accept([&](Error error, aio::Stream stream) {
      if (error) return;
      ++accepted;
      served.push_back(std::move(stream));
      accept();
    });
  };
  accept();
  bed.until("20 accepts", [&] { return accepted == 20 && connected == 20; });
  check(served.size() == 20, "who arrives while nobody accepts is accepted later");
  bed.acceptor.cancel();
  bed.context.poll();
}

#ifdef HAS_COROUTINES
#ifdef AECONN_BOOST_ASIO
using net_system_error = boost::system::system_error;
#else
using net_system_error = std::system_error;
#endif

// docs/adapters.md shows these two.
net::awaitable<void> echo(aio::Stream stream) {
  std::array<char, 1000> room;
  for (;;) {
    const std::size_t size = co_await stream.async_read_some(net::buffer(room), net::use_awaitable);
    co_await net::async_write(stream, net::buffer(room, size), net::use_awaitable);
  }
}

net::awaitable<std::string> ask(const conn::Registry& registry, ae::EpollLoop& loop,
                                std::string url, std::string question) {
  aio::Stream stream(co_await net::this_coro::executor);
  co_await stream.async_connect(registry, loop, url, net::use_awaitable);
  co_await net::async_write(stream, net::buffer(question), net::use_awaitable);
  std::string answer(question.size(), '\0');
  co_await net::async_read(stream, net::buffer(answer), net::use_awaitable);
  co_return answer;
}

void coroutines(Bed& bed) {
  int answers = 0, ends = 0;
  for (std::size_t i = 0; i < 30; ++i) {
    net::co_spawn(
        bed.context,
        [&bed]() -> net::awaitable<void> {
          co_await echo(co_await bed.acceptor.async_accept(net::use_awaitable));
        },
        [&](std::exception_ptr why) {
          try {
            std::rethrow_exception(why);
          } catch (const net_system_error& error) {
            ends += error.code() == Error(net::error::eof);
          }
        });
    const std::string question = bytes(i * 1000 + 1, i);
    net::co_spawn(bed.context, ask(bed.registry, bed.loop, bed.url(), question),
                  [&answers, question](std::exception_ptr why, const std::string& answer) {
                    answers += why == nullptr && answer == question;
                  });
  }
  bed.until("coroutines", [&] { return answers == 30 && ends == 30; });
  check(answers == 30, "coroutines ask and answer");
#if AECONN_ASIO_VERSION >= 102000
  using namespace net::experimental::awaitable_operators;
  auto both = bed.connect();
  aio::Stream& server = both.server;
  bool timed_out = false, over = false;
  net::co_spawn(
      bed.context,
      [&]() -> net::awaitable<void> {
        char byte = 0;
        net::steady_timer timer(bed.context, 1ms);
        const auto first =
            co_await (server.async_read_some(net::buffer(&byte, 1), net::use_awaitable) ||
                      timer.async_wait(net::use_awaitable));
        timed_out = first.index() == 1;
      },
      [&](std::exception_ptr) { over = true; });
  bed.until("a coroutine's time-out", &over);
  check(timed_out, "a read or a timer, whichever is first");
#endif
}
#endif

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string listen = argv[1], query = argc > 2 ? argv[2] : "";
  watch();
  {
    Bed bed(listen, query);
    transfers(bed);
    cancels(bed);
#if AECONN_ASIO_VERSION >= 102000
    slots(bed);
#endif
    associations(bed);
    failures(bed);
    crowds(bed);
    not_begun(bed);
#ifdef HAS_COROUTINES
    coroutines(bed);
#endif
#ifdef WITH_SSL
    if (argc > 4) over_ssl(bed, argv[3], argv[4]);
#endif
  }
  ends(listen, query);
  std::cout << passed << " passed, " << failed << " failed" << std::endl;
  return failed == 0 ? 0 : 1;
}
