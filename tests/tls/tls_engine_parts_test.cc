// SPDX-License-Identifier: BSD-3-Clause
// The parts of the TLS engine, each by itself: output that waits, input that is rationed, the end
// of a wire, the limit of messages.
#if AECONN_TLS

#include <cerrno>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conn/tls/engine/message_limit.h"
#include "conn/tls/engine/output.h"
#include "conn/tls/engine/phases.h"
#include "conn/tls/engine/supply.h"
#include "tests/support/allocations.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

using conn::tls::CheckedWire;
using conn::tls::MessageLimit;
using conn::tls::Output;
using conn::tls::Supply;
using testing::Pipe;
using testing::PipeWire;
using State = Output::State;

namespace {

/// An output over a pipe, whose other direction gives no input.
struct Sent {
  Pipe nothing, pipe;
  PipeWire wire{nothing, pipe};
  CheckedWire checked{wire};
  Output output{checked};
  std::size_t put(const std::string& bytes) { return output.put(bytes.data(), bytes.size()); }
  std::string text() const { return {pipe.bytes.begin(), pipe.bytes.end()}; }
};

}  // namespace

TEST_CASE("tls output: it keeps what the wire does not take, in order", "[tls]") {
  Sent sent;
  REQUIRE(sent.put("ab") == 2);
  REQUIRE(sent.output.state() == State::kThrough);
  sent.pipe.room = 3;
  REQUIRE(sent.put("cde") == 3);
  REQUIRE(sent.output.state() == State::kUnsent);
  REQUIRE(sent.output.unsent() == 2);
  REQUIRE(sent.put("fg") == 2);
  REQUIRE(sent.output.unsent() == 4);
  REQUIRE(sent.output.flush() == Output::Flushed::kPartly);
  sent.output.release_memory();  // no effect
  sent.pipe.room = 5;
  REQUIRE(sent.output.flush() == Output::Flushed::kPartly);
  REQUIRE(sent.output.unsent() == 2);
  sent.pipe.room = SIZE_MAX;
  REQUIRE(sent.output.flush() == Output::Flushed::kAll);
  REQUIRE(sent.output.state() == State::kThrough);
  REQUIRE(sent.text() == "abcdefg");
}

TEST_CASE("tls output: a wire that always leaves a byte does not make it grow", "[tls][hostile]") {
  class Narrow final : public conn::tls::Wire {
   public:
    ssize_t receive(void*, std::size_t) override { return 0; }
    ssize_t transmit(const void* buffer, std::size_t size) override {
      const auto n = std::exchange(room, 0);
      if (n == 0) errno = EAGAIN;
      if (n == 0 || n > size) return -1;
      last = static_cast<const char*>(buffer)[n - 1];
      return static_cast<ssize_t>(n);
    }
    ssize_t transmit_record(std::uint8_t, const void*, std::size_t) override { return -1; }
    std::size_t room = 0;
    char last = 0;
  };
  Narrow wire;
  CheckedWire checked(wire);
  Output output(checked);
  REQUIRE(output.put("0", 1) == 1);
  std::string bytes(100, '-');
  const auto turns = [&](int count) {
    for (int i = 0; i < count; ++i) {
      bytes.back() = static_cast<char>('0' + i % 10);
      if (output.put(bytes.data(), bytes.size()) != bytes.size()) return false;
      wire.room = 100;
      if (output.flush() != Output::Flushed::kPartly || output.unsent() != 1) return false;
      if (wire.last != '-') return false;
    }
    return true;
  };
  REQUIRE(turns(100));
#if AECONN_COUNTS_ALLOCATIONS
  const auto before = testing::watch_allocations(false).by_others;
#endif
  const bool went_on = turns(10'000);
#if AECONN_COUNTS_ALLOCATIONS
  CHECK(testing::watch_allocations(false).by_others == before);
#endif
  REQUIRE(went_on);
  wire.room = 1;
  CHECK(output.flush() == Output::Flushed::kAll);
  CHECK(wire.last == '9');
}

TEST_CASE("tls output: a flight is held back until the next write", "[tls]") {
  Sent sent;
  sent.output.collect();
  REQUIRE(sent.put("fli") == 3);
  REQUIRE(sent.put("ght") == 3);
  REQUIRE(sent.output.unsent() == 0);
  REQUIRE(sent.output.end_collecting(true));
  REQUIRE(sent.output.holds());
  REQUIRE(sent.text().empty());
  SECTION("a write") {
    REQUIRE(sent.put("data") == 4);
    REQUIRE(sent.wire.transmits == 1);
    REQUIRE(sent.output.state() == State::kThrough);
    REQUIRE(sent.text() == "flightdata");
  }
  SECTION("a write that does not fit") {
    sent.pipe.room = 8;
    REQUIRE(sent.put("data") == 4);
    REQUIRE(sent.output.unsent() == 2);
    REQUIRE_FALSE(sent.output.holds());
  }
  SECTION("a flush") {
    REQUIRE(sent.output.flush() == Output::Flushed::kAll);
    REQUIRE(sent.text() == "flight");
  }
  SECTION("a wire that fails") {
    sent.pipe.error = EPIPE;
    REQUIRE(sent.put("data") == 0);
    REQUIRE(sent.checked.error() == EPIPE);
    REQUIRE(sent.output.flush() == Output::Flushed::kFailed);
    REQUIRE(sent.output.state() == State::kThrough);
  }
}

TEST_CASE("tls output: a flight that is not the last one is sent by flush()", "[tls]") {
  Sent sent;
  sent.output.collect();
  REQUIRE_FALSE(sent.output.end_collecting(true));  // nothing was written
  REQUIRE(sent.output.state() == State::kThrough);
  sent.output.collect();
  REQUIRE(sent.put("flight") == 6);
  REQUIRE(sent.output.end_collecting(false));
  REQUIRE(sent.output.unsent() == 6);
  sent.output.collect();  // no effect: something is kept
  REQUIRE_FALSE(sent.output.end_collecting(true));
  REQUIRE(sent.output.flush() == Output::Flushed::kAll);
  REQUIRE(sent.text() == "flight");
}

TEST_CASE("tls output: what is gathered is offered to the wire together", "[tls]") {
  Sent sent;
  std::vector<char> room(Output::kLargestRecord + 3);
  sent.output.gather(std::span(room).first(Output::kLargestRecord - 1));  // too small: no effect
  REQUIRE(sent.output.state() == State::kThrough);
  sent.output.gather(room);
  REQUIRE(sent.put("abc") == 3);
  REQUIRE(sent.wire.transmits == 0);
  REQUIRE(sent.output.unsent() == 0);
  REQUIRE(sent.output.flush() == Output::Flushed::kAll);  // there is nothing to offer again
  REQUIRE(sent.output.state() == State::kGathering);
  SECTION("at the end") {
    REQUIRE(sent.output.send_gathered());
    REQUIRE(sent.output.send_gathered());  // no effect
    REQUIRE(sent.wire.transmits == 1);
    REQUIRE(sent.text() == "abc");
  }
  SECTION("as soon as the room may be too small for another record") {
    REQUIRE(sent.put("d") == 1);
    REQUIRE(sent.output.state() == State::kThrough);
    REQUIRE(sent.put("e") == 1);
    REQUIRE(sent.wire.transmits == 2);
    REQUIRE(sent.text() == "abcde");
  }
  SECTION("before what does not fit") {
    const std::string large(room.size(), 'x');
    REQUIRE(sent.put(large) == large.size());
    REQUIRE(sent.text() == "abc" + large);
  }
  SECTION("what the wire does not take is kept") {
    sent.pipe.room = 2;
    REQUIRE(sent.output.send_gathered());
    REQUIRE(sent.output.unsent() == 1);
    sent.output.gather(room);  // no effect: something is kept
    REQUIRE(sent.put("d") == 1);
    sent.pipe.room = SIZE_MAX;
    REQUIRE(sent.output.flush() == Output::Flushed::kAll);
    REQUIRE(sent.text() == "abcd");
  }
  SECTION("a wire that fails") {
    sent.pipe.error = EPIPE;
    REQUIRE_FALSE(sent.output.send_gathered());
    REQUIRE(sent.output.state() == State::kThrough);
    sent.pipe.error = 0;
    sent.output.gather(room);
    REQUIRE(sent.put("d") == 0);  // and nothing more is taken
  }
}

TEST_CASE("tls output: records for the kernel do not queue", "[tls]") {
  Sent sent;
  sent.pipe.room = 1;
  REQUIRE(sent.put("ab") == 2);
  sent.output.set_type(21);
  REQUIRE(sent.put("alert") == 0);
  REQUIRE_FALSE(sent.checked.failed());  // OpenSSL retries
  REQUIRE(sent.output.unsent() == 1);
}

TEST_CASE("tls supply: input is rationed", "[tls]") {
  Supply supply;
  supply.begin(10);
  REQUIRE(supply.ask(false));
  supply.got(10, false);
  REQUIRE_FALSE(supply.ask(false));  // the budget is used up
  REQUIRE(supply.paused());
  supply.begin(10);
  REQUIRE_FALSE(supply.ask(true));
  REQUIRE(supply.paused());
  REQUIRE(supply.ask(false));  // not withheld any more
  supply.got(4, true);
  REQUIRE_FALSE(supply.ask(false));  // the wire is known to be empty
  REQUIRE(supply.emptied());
  supply.begin(10);
  REQUIRE(supply.ask(false));
  supply.got(4, true);
  REQUIRE(supply.ask_for_left(false));       // of what was read there is more
  REQUIRE_FALSE(supply.ask_for_left(true));  // withheld
  REQUIRE(supply.paused());
  REQUIRE(supply.ask_for_left(false));
  supply.begin(10);
  REQUIRE(supply.ask(false));
  supply.got_nothing();
  REQUIRE(supply.emptied());
  supply.begin_drained();
  REQUIRE_FALSE(supply.ask(false));
  REQUIRE(supply.emptied());
  supply.shut();
  supply.begin(10);
  REQUIRE_FALSE(supply.ask(false));
  REQUIRE(supply.paused());
  REQUIRE_FALSE(supply.ask_for_left(false));
}

TEST_CASE("tls wire: its two directions end separately", "[tls]") {
  Pipe in, out;
  PipeWire wire(in, out);
  CheckedWire checked(wire);
  char byte;
  REQUIRE(checked.receive(&byte, 1) == CheckedWire::kNothingNow);
  out.room = 0;
  REQUIRE(checked.send(0, "x", 1) == 0);
  REQUIRE_FALSE(checked.failed());
  in.ended = true;
  REQUIRE(checked.receive(&byte, 1) == 0);
  REQUIRE(checked.ended());
  REQUIRE_FALSE(checked.failed());
  out.error = EPIPE;
  REQUIRE(checked.send(0, "x", 1) == CheckedWire::kFailed);
  REQUIRE(checked.error() == EPIPE);
  in.bytes = {'x'};
  REQUIRE(checked.receive(&byte, 1) == 1);  // a failed wire may still have input
}

TEST_CASE("tls message limit: data allows further messages", "[tls]") {
  MessageLimit limit;
  for (std::uint64_t i = 0; i < MessageLimit::kMessages; ++i) REQUIRE_FALSE(limit.count_message());
  REQUIRE(limit.count_message());
  limit.count_data(MessageLimit::kPer - 1);
  REQUIRE(limit.count_message());
  limit.count_data(1);
  REQUIRE_FALSE(limit.count_message());
}

TEST_CASE("tls phases: which steps are allowed", "[tls]") {
  using conn::tls::allowed;
  using conn::tls::Phase;
  using conn::tls::Receiving;
  using conn::tls::Sending;
  REQUIRE(allowed(Phase::kNew, Phase::kShaking));
  REQUIRE_FALSE(allowed(Phase::kNew, Phase::kEstablished));
  REQUIRE_FALSE(allowed(Phase::kEstablished, Phase::kShaking));
  REQUIRE(allowed(Receiving::kOpen, Receiving::kEnded));
  REQUIRE_FALSE(allowed(Receiving::kEnded, Receiving::kOver));
  REQUIRE(allowed(Sending::kBlocked, Sending::kOpen));
  REQUIRE_FALSE(allowed(Sending::kCloseOwed, Sending::kOpen));
  REQUIRE_FALSE(Output::allowed(State::kHeld, State::kThrough));
  REQUIRE_FALSE(Supply::allowed(Supply::State::kEmptied, Supply::State::kOpen));
}

#endif  // AECONN_TLS
