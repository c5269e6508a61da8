// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Tests of operations of adapters/asio.h whose handlers do not run: those that wait when their
// context ends, and those whose call threw.

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "tests/adapters/asio_kit.h"
#include "tests/support/stuck_transport.h"

namespace asio_kit {

/// The end of a context destroys waiting operations and what they own, for example streams.
inline void ends(const std::string& listen, const std::string& query) {
  doing = "the end of a context";
  const auto marker = std::make_shared<int>(0);
  int ran = 0;
  {
    Bed bed(listen, query);
    auto both = bed.connect();
    struct Owner {
      Owner(aio::Stream its, std::shared_ptr<int> kept)
          : stream(std::move(its)), marker(std::move(kept)) {}
      aio::Stream stream;
      std::shared_ptr<int> marker;
      char byte = 0;
    };
    // A reference cycle, as with a coroutine that waits for its own stream.
    const auto owner = std::make_shared<Owner>(std::move(both.server), marker);
    owner->stream.async_read_some(net::buffer(&owner->byte, 1),
                                  [owner, &ran](Error, std::size_t) { ++ran; });
    bed.acceptor.async_accept([marker, &ran](Error, aio::Stream) { ++ran; });
    aio::Stream connecting(bed.context);
    const auto other = std::make_shared<Owner>(std::move(connecting), marker);
    other->stream.async_connect(bed.registry, bed.loop, bed.url(), [other, &ran](Error) { ++ran; });
#ifdef HAS_COROUTINES
    net::co_spawn(
        bed.context,
        [](aio::Stream stream, std::shared_ptr<int>) -> net::awaitable<void> {
          char byte = 0;
          co_await stream.async_read_some(net::buffer(&byte, 1), net::use_awaitable);
        }(std::move(both.client), marker),
        net::detached);
    for (int i = 0; i < 3; ++i) bed.context.poll_one();
#endif
    check(marker.use_count() > 3, "operations own what they need");
    // Acceptor and attachment are destroyed before the context, the operations with it.
  }
  check(marker.use_count() == 1, "nothing is left of what waited in a context that has ended");
}

#if AECONN_ASIO_VERSION >= 101900
/// A handler that must not run, because there is no memory to connect its cancellation slot.
struct NotCancelled {
  struct Slot {
    bool is_connected() const noexcept { return true; }
    template <class Cancel>
    void assign(const Cancel&) {
      throw std::bad_alloc();
    }
    void clear() noexcept {}
    bool operator==(const Slot&) const = default;
  };
  using cancellation_slot_type = Slot;
  Slot get_cancellation_slot() const noexcept { return {}; }
  template <class... Results>
  void operator()(const Results&...) const {
    ++*ran;
  }
  int* ran;
};
#endif

template <class Begin>
bool throws_bad_alloc(const Begin& begin) {
  try {
    begin();
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

/// A call that throws has not begun an operation: its handler does not run, and the next operation
/// does not wait behind it.
inline void not_begun(Bed& bed) {
  doing = "a call without memory";
  conn::Registry registry = conn::all_transports();
  auto& stuck =
      static_cast<testing::StuckType&>(registry.add(std::make_unique<testing::StuckType>()));
  int ran = 0;
  const auto handler = [&ran](Error, std::size_t = 0) { ++ran; };
  const auto cancels_nothing = [&](aio::Stream& stream, std::string_view what) {
    stream.cancel();
    bed.context.poll();
    check(ran == 0, what);
  };
  char byte = 0;
  const auto buffer = net::buffer(&byte, 1);
  for (const bool reads : {true, false}) {
    const auto begin = [&](aio::Stream& stream, auto its) {
      if (reads)
        stream.async_read_some(buffer, std::move(its));
      else
        stream.async_write_some(buffer, std::move(its));
    };
    aio::Stream stream(bed.context);
    Result connected, done;
    stream.async_connect(registry, bed.loop, "stuck://there", connected.handler());
    stuck.connect_all();
    bed.until("a connect", &connected);
    stuck.interest_throws = true;
    check(throws_bad_alloc([&] { begin(stream, handler); }), "no memory to start waiting");
    stuck.interest_throws = false;
    cancels_nothing(stream, "a read or write that threw has no handler to run");
#if AECONN_ASIO_VERSION >= 101900
    check(throws_bad_alloc([&] { begin(stream, NotCancelled{&ran}); }), "no memory for a slot");
    cancels_nothing(stream, "a read or write without a slot has no handler to run");
#endif
    begin(stream, done.handler());
    stuck.let_all_go_on();
    bed.until("the operation after one that threw", &done);
    check(done.is({}) && done.size == 1, "the next operation completes", done.error->message());
    stuck.flows = false;
  }
#if AECONN_ASIO_VERSION >= 101900
  aio::Stream stream(bed.context);
  check(throws_bad_alloc(
            [&] { stream.async_connect(registry, bed.loop, "stuck://there", NotCancelled{&ran}); }),
        "no memory for the slot of a connect");
  cancels_nothing(stream, "a connect that threw has no handler to run");
  check(throws_bad_alloc([&] { bed.acceptor.async_accept(NotCancelled{&ran}); }),
        "no memory for the slot of an accept");
  bed.acceptor.cancel();
  bed.context.poll();
  check(ran == 0, "an accept that threw has no handler to run");
#endif
}

}  // namespace asio_kit
