// SPDX-License-Identifier: BSD-3-Clause
#if AECONN_RDMA
#include "tests/support/hostile_vectors.h"

#include <limits>

namespace testing {
namespace {

using enum Outcome;
constexpr std::uint64_t kHighest = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kHuge = std::numeric_limits<std::uint32_t>::max();

const char* const kControlRule = "a control message is one SEND of exactly 32 bytes";
const char* const kOpcodeRule = "opcodes are 0 to 3";
const char* const kFeatureRule = "no feature bit is defined, unnamed bytes are zero";
const char* const kWindowRule = "a window is memory the peer may write, of 1 to max bytes";
const char* const kClaimRule = "an immediate is the number of bytes added to the window";
const char* const kWriteRule = "data is written into the offered window and nowhere else";
const char* const kBudgetRule = "messages that nothing earned stay within a budget";
const char* const kReceiveRule = "receives are posted, and posted again";
const char* const kHelloRule = "who sends no valid hello is spoken to in the plain protocol";
const char* const kSetupRule = "request, answer, ready to use, a window";

const char* const kUnwritable = "window it offered is not writable";
const char* const kNoReply = "does not answer";

auto sends(std::string bytes) {
  return [bytes = std::move(bytes)](RawPeer& p) { p.send(bytes); };
}

auto offers(std::uint64_t address, std::uint32_t length) {
  return [=](RawPeer& p) { p.send(raw_register(address, length, p.own_window().key)); };
}

// Makes this side write its next bytes there.
void lure(RawPeer& p, const RawPeer::Offer& to) {
  p.send(raw_register(to.address, to.length, to.key));
  p.stream("and now echo this");
}

std::string with_noise(std::string message, std::initializer_list<std::size_t> unnamed) {
  for (const std::size_t at : unnamed) message[at] = '\xee';
  return message;
}

bool stands(const RawPeer& p) { return p.established; }

// Hello flags: all that windows ahead require.
constexpr std::uint32_t kTakesAhead = 1 | 2 | 16 | 32;

std::string raw_ahead(const RawPeer::Offer& window) {
  std::string bytes = raw_register(window.address, window.length, window.key);
  bytes[2] = '\x41';
  bytes[3] = '\x58';
  return bytes;
}

RawOptions silent() {
  RawOptions options;
  options.announce = false;
  return options;
}

RawOptions saying(std::string private_data) {
  RawOptions options;
  options.private_data = std::move(private_data);
  return options;
}

}  // namespace

std::vector<HostileVector> control_vectors() {
  std::vector<HostileVector> all;
  for (const std::size_t size : {0, 1, 2, 16, 31})
    all.push_back({"SEND of " + std::to_string(size) + " bytes", kControlRule, kError, "wrong size",
                   sends(std::string(size, '\0'))});
  for (const std::size_t size : {33, 64, 4096})
    all.push_back({"SEND of " + std::to_string(size) + " bytes", kControlRule, kError,
                   "receive failed", sends(std::string(size, '\0'))});
  for (const int opcode : {4, 5, 100, 0x0100, 0x0300, 0x7fff, 0xffff})
    all.push_back({"opcode " + std::to_string(opcode), kOpcodeRule, kError, "unknown opcode",
                   sends(raw_control(static_cast<std::uint16_t>(opcode)))});
  all.insert(all.end(), {{"bytes of the stream in a SEND", kControlRule, kError, "wrong size",
                          sends("*1\r\n$4\r\nPING\r\n")},
                         {"text as long as a control message", kOpcodeRule, kError,
                          "unknown opcode", sends("GET / HTTP/1.1\r\nHost: aeconn\r\n\r\n")},
                         {"question for an unknown page", kFeatureRule, kGoesOn, "",
                          sends(raw_feature(0, 0x1234, 0))},
                         {"question that claims all features", kFeatureRule, kGoesOn, "",
                          sends(raw_feature(0, 0, kHighest))},
                         {"question with noise in unnamed bytes", kFeatureRule, kGoesOn, "",
                          sends(with_noise(raw_feature(0, 1, 0), {4, 9, 15, 16, 23}))},
                         {"question that looks like a server's", kFeatureRule, kGoesOn, "",
                          sends(raw_feature(0, 0x8001, 0))},
                         {"setting of unknown features on an unknown page", kFeatureRule, kGoesOn,
                          "", sends(raw_feature(1, 0xffff, kHighest))},
                         {"keepalive with noise in all unnamed bytes", kFeatureRule, kGoesOn, "",
                          sends(with_noise(raw_keepalive(), {2, 3, 4, 12, 16, 24, 28, 31}))},
                         {"client asked by its server",
                          "a server asks only clients whose hello allows it",
                          kGoesOn,
                          "",
                          sends(raw_feature(0, 0, 0)),
                          {},
                          Culprit::kServer},
                         {"client told features by its server",
                          "only clients set features",
                          kGoesOn,
                          "",
                          sends(raw_feature(1, 0, 1)),
                          {},
                          Culprit::kServer}});
  HostileVector immediate{"SEND with an immediate", kControlRule, kGoesOn, "",
                          [](RawPeer& p) { p.send_with_immediate(raw_keepalive(), 77); }};
  immediate.sends_immediate = true;
  all.push_back(immediate);
  immediate.name = "SEND of no bytes with an immediate";
  immediate.outcome = kError;
  immediate.sentence = "wrong size";
  immediate.strike = [](RawPeer& p) { p.send_with_immediate("", 77); };
  all.push_back(std::move(immediate));
  return all;
}

std::vector<HostileVector> window_vectors() {
  RawOptions tiny, odd;
  tiny.window = 1;
  odd.window = 4093;
  std::vector<HostileVector> all{
      {"window of no bytes", kWindowRule, kError, "window of no bytes", offers(4096, 0)},
      {"window of 2^32-1 bytes", kWindowRule, kError, "beyond max-peer-window",
       offers(4096, kHuge)},
      {"window of 1 GiB", kWindowRule, kError, "beyond max-peer-window", offers(4096, 1u << 30)},
      {"window of one byte too many", kWindowRule, kError, "beyond max-peer-window",
       offers(4096, (16u << 20) + 1)},
      {"window that wraps around", kWindowRule, kError, "wraps around",
       offers(kHighest - 4096, 65536)},
      {"window that ends at 2^64", kWindowRule, kError, "wraps around",
       offers(kHighest - 65535, 65536)},
      {"window at the last address", kWindowRule, kError, "wraps around", offers(kHighest, 1)},
      {"more windows ahead than there may be", kWindowRule, kError, "more windows than it may",
       [](RawPeer& p) {
         for (int i = 0; i < 17; ++i) p.send(raw_ahead(p.own_window()));
       },
       saying(raw_hello(kTakesAhead, 0))},
      {"windows ahead without end", kWindowRule, kError, "more windows than it may",
       [](RawPeer& p) {
         for (int i = 0; i < 1000; ++i) p.send(raw_ahead({4096, 1, 0}));
       },
       saying(raw_hello(kTakesAhead, 0))},
      {"bytes that waited, beyond the window", kClaimRule, kError, "past the end of the window",
       [](RawPeer& p) { p.immediate(0xffffffff); }, saying(raw_hello(kTakesAhead, 0))},
      {"windows of one byte", kWindowRule, kGoesOn, "", {}, tiny},
      {"windows of an odd length", kWindowRule, kGoesOn, "", {}, odd},
      {"window at address 0", kWindowRule, kError, kUnwritable,
       [](RawPeer& p) {
         lure(p, {0, 65536, p.own_window().key});
       }},
      {"window of the longest length in memory that is not there", kWindowRule, kError, kUnwritable,
       [](RawPeer& p) {
         lure(p, {1ull << 40, 16u << 20, p.own_window().key});
       }},
      {"window with a key that is none", kWindowRule, kError, kUnwritable,
       [](RawPeer& p) {
         lure(p, {p.own_window().address, 65536, 0xdeadbeef});
       }},
      {"window with key 0", kWindowRule, kError, kUnwritable,
       [](RawPeer& p) {
         lure(p, {p.own_window().address, 65536, 0});
       }},
      {"window in memory of another address", kWindowRule, kError, kUnwritable,
       [](RawPeer& p) {
         lure(p, {p.own_window().address - 65536, 65536, p.own_window().key});
       }},
      {"window that begins too late", kWindowRule, kError, kUnwritable,
       [](RawPeer& p) {
         lure(p, {p.own_window().address + 65530, 65536, p.own_window().key});
       }},
      {"window in memory nobody may write", kWindowRule, kError, kUnwritable,
       [](RawPeer& p) { lure(p, p.unwritable_memory()); }},
      {"window in our own memory", kWindowRule, kError, kUnwritable,
       [](RawPeer& p) {
         lure(p, {p.offer().address, 4096, p.offer().key});
       }},
      {"window offered again with other bytes set", kFeatureRule, kGoesOn, "",
       [](RawPeer& p) {
         const RawPeer::Offer own = p.own_window();
         p.send(with_noise(raw_register(own.address, own.length, own.key), {2, 3, 4, 10, 15}));
       }},
      {"windows that shrink before they are used", kWindowRule, kGoesOn, "",
       [](RawPeer& p) {
         for (const std::uint32_t length : {8192u, 4096u, 64u, 16u}) p.announce_new(length);
       }},
      {"another window while our writes are in flight", kWindowRule, kEither, "",
       [](RawPeer& p) {
         p.stream(std::string(60000, 'w'));
         for (int i = 0; i < 4; ++i) p.announce_new(4096);
       }},
  };
  return all;
}

std::vector<HostileVector> data_vectors() {
  const char* const kPast = "past the end of the window";
  const char* const kNotOffered = "was not offered";
  RawOptions eager = silent();
  eager.at_established = [](RawPeer& p) { p.immediate(1); };
  return {
      {"immediate of one byte too many", kClaimRule, kError, kPast,
       [](RawPeer& p) { p.immediate(p.offer().length + 1); }},
      {"immediate of 2^32-1", kClaimRule, kError, kPast, [](RawPeer& p) { p.immediate(kHuge); }},
      {"immediate of 2^31", kClaimRule, kError, kPast, [](RawPeer& p) { p.immediate(1u << 31); }},
      {"immediate whose sum wraps around", kClaimRule, kError, kPast,
       [](RawPeer& p) {
         p.immediate(100);
         p.immediate(kHuge - 99);
       }},
      {"immediate in the other byte order", kClaimRule, kError, kPast,
       [](RawPeer& p) { p.write("xyz", p.offer().address, p.offer().key, 0x03000000); }},
      {"one more byte after a full window", kClaimRule, kError, kNotOffered,
       [](RawPeer& p) {
         p.immediate(p.offer().length);
         p.immediate(1);
       }},
      {"two full windows before the next offer", kClaimRule, kError, kNotOffered,
       [](RawPeer& p) {
         p.immediate(p.offer().length);
         p.immediate(p.offer().length);
       }},
      {"claim of more than was written", kClaimRule, kGoesOn, "",
       [](RawPeer& p) {
         p.write("ab", p.offer().address, p.offer().key, 1000);
         p.offer_used += 1000;
       }},
      {"claim of less than was written", kClaimRule, kGoesOn, "",
       [](RawPeer& p) {
         p.write(std::string(1000, 'z'), p.offer().address, p.offer().key, 10);
         p.offer_used += 10;
       }},
      {"claim before any window was offered",
       kClaimRule,
       kEither,
       "",
       {},
       eager,
       Culprit::kBoth,
       stands},
      {"claim after saying goodbye", kClaimRule, kGone, "",
       [](RawPeer& p) {
         p.disconnect();
         p.immediate(1);
       }},
      {"write with a wrong key, and a claim", kWriteRule, kError, "",
       [](RawPeer& p) { p.write("x", p.offer().address, p.offer().key + 1, 1); }},
      {"write with a key of another kind, and no claim", kWriteRule, kError, "",
       [](RawPeer& p) { p.write("x", p.offer().address, p.offer().key ^ 0x100); }},
      {"write with key 0", kWriteRule, kError, "",
       [](RawPeer& p) { p.write("x", p.offer().address, 0, 1); }},
      {"write before the window", kWriteRule, kError, "",
       [](RawPeer& p) { p.write("x", p.offer().address - 1, p.offer().key, 1); }},
      {"write behind the window", kWriteRule, kError, "",
       [](RawPeer& p) { p.write("x", p.offer().address + p.offer().length, p.offer().key); }},
      {"write across the window's end", kWriteRule, kError, "",
       [](RawPeer& p) {
         p.write("xx", p.offer().address + p.offer().length - 1, p.offer().key, 1);
       }},
      {"write longer than the window", kWriteRule, kError, "",
       [](RawPeer& p) {
         p.write(std::string(p.offer().length + 1, 'l'), p.offer().address, p.offer().key);
       }},
      {"write to address 0", kWriteRule, kError, "",
       [](RawPeer& p) { p.write("x", 0, p.offer().key); }},
      {"write that wraps around", kWriteRule, kError, "",
       [](RawPeer& p) { p.write("xx", kHighest, p.offer().key); }},
      {"bytes that are rewritten while they are read", kWriteRule, kGoesOn, "",
       [](RawPeer& p) {
         const RawPeer::Offer window = p.offer();
         p.stream(std::string(1000, 'a'));
         for (char c = 'b'; c < 'h'; ++c) p.write(std::string(1000, c), window.address, window.key);
       }},
      {"write of no bytes to nowhere", kWriteRule, kGoesOn, "",
       [](RawPeer& p) { p.write("", 12345, 6789); }},
      {"READ of the window", "the protocol has no READ", kError, "",
       [](RawPeer& p) { p.read(4096, p.offer().address, p.offer().key); }},
      {"READ of what lies before the window", "the protocol has no READ", kError, "",
       [](RawPeer& p) { p.read(64, p.offer().address - 64, p.offer().key); }},
      {"atomic addition in the window", "the protocol has no atomics", kError, "",
       [](RawPeer& p) { p.fetch_and_add(p.offer().address, p.offer().key); }},
      {"atomic exchange in the window", "the protocol has no atomics", kError, "",
       [](RawPeer& p) { p.compare_and_swap(p.offer().address, p.offer().key); }},
      {"SEND that invalidates a key that is none", kControlRule, kEither, "",
       [](RawPeer& p) { p.send_and_invalidate(raw_keepalive(), 0xdeadbeef); }},
      {"SEND that invalidates its own window", kControlRule, kError, "",
       [](RawPeer& p) {
         p.send_and_invalidate(raw_keepalive(), p.offer().key);
         p.write("x", p.offer().address, p.offer().key, 1);
       }},
  };
}

std::vector<HostileVector> flood_vectors() {
  const char* const kFlood = "floods us";
  const auto flood = [&](const char* name, const char* sentence,
                         const std::function<void(RawPeer&, int)>& one) {
    HostileVector made{name, kBudgetRule, kError, sentence, [one](RawPeer& p) {
                         for (int i = 0; i < 256 && p.can_post(); ++i) one(p, i);
                       }};
    made.repeats = true;
    return made;
  };
  return {
      flood("flood of keepalives", kFlood, [](RawPeer& p, int) { p.send(raw_keepalive()); }),
      flood("flood of windows", kFlood, [](RawPeer& p, int) { p.announce(); }),
      flood("flood of immediates of 0", kFlood, [](RawPeer& p, int) { p.immediate(0); }),
      flood("flood of settings", kFlood,
            [](RawPeer& p, int) { p.send(raw_feature(1, 0, kHighest)); }),
      flood("flood of questions", "", [](RawPeer& p, int) { p.send(raw_feature(0, 0, 0)); }),
      flood("flood of answers to nobody's question", "",
            [](RawPeer& p, int i) {
              p.send(raw_feature(0, static_cast<std::uint16_t>(0x8000 + i), 0));
            }),
      flood("flood of everything that is allowed", "",
            [](RawPeer& p, int i) {
              if (i % 4 == 0) return p.announce();
              if (i % 4 == 1) return p.immediate(0);
              p.send(i % 4 == 2 ? raw_keepalive() : raw_feature(1, 0, 0));
            }),
  };
}

std::vector<HostileVector> receive_vectors() {
  RawOptions none, few, no_window, promises, impatient;
  none.receives = 0;
  few.receives = 4;
  few.reposts = false;
  promises.private_data = raw_hello(7, 100);
  impatient.private_data = raw_hello(4, 1);
  HostileVector never_offers{"no window, ever",        kSetupRule, kError,
                             "never offered a window", {},         silent(),
                             Culprit::kBoth,           stands};
  never_offers.allowance = kHostileAcceptTimeout;
  HostileVector vanishes{"a queue pair that vanishes", kSetupRule, kError, kNoReply,
                         [](RawPeer& p) { p.drop_queue_pair(); }};
  vanishes.allowance = kRetries;
  HostileVector only_talks = never_offers;
  only_talks.name = "no window, but keepalives";
  only_talks.strike = sends(raw_keepalive());
  std::vector<HostileVector> all{
      {"no receives, ever", kReceiveRule, kGone, "", {}, none, Culprit::kBoth, stands},
      {"receives that run dry", kReceiveRule, kGone, "",
       [](RawPeer& p) {
         for (int i = 0; i < 50; ++i) p.stream("echo this to a peer without receives");
       },
       few},
      {"completions that nobody looks at", kReceiveRule, kGone, "",
       [](RawPeer& p) {
         p.stream("and nobody reads the answer");
         p.stop_polling();
       }},
      never_offers,
      only_talks,
      // The peer's device proves that it is alive, except on iWARP.
      {"promised keepalives that do not come",
       "who promised keepalives sends them",
       kEither,
       "",
       {},
       promises},
      {"keepalives promised for every millisecond",
       "who promised keepalives sends them",
       kEither,
       "",
       {},
       impatient},
      {"questions of a server that nobody answers",
       "flag 2 promises answers",
       kGoesOn,
       "",
       {},
       saying(raw_hello(3, 0))},
      vanishes,
      {"goodbye with bytes on the way", kSetupRule, kGone, "",
       [](RawPeer& p) {
         p.stream(std::string(50000, 'g'));
         p.disconnect();
       }},
      {"two goodbyes", kSetupRule, kGone, "",
       [](RawPeer& p) {
         p.disconnect();
         p.disconnect();
       }},
  };
  return all;
}

std::vector<HostileVector> setup_vectors() {
  const std::string hello = raw_hello(3, 0);
  const auto mutated = [&](std::size_t at, char value) {
    std::string bytes = hello;
    bytes[at] = value;
    return bytes;
  };
  std::vector<HostileVector> all;
  const auto greets = [&](const std::string& name, std::string data, Culprit who = Culprit::kBoth) {
    all.push_back({name, kHelloRule, kGoesOn, "", {}, saying(std::move(data)), who});
  };
  greets("private data of 1 byte", "x");
  greets("private data of 56 bytes of noise", std::string(56, '\xff'));
  greets("private data of 196 bytes of noise", std::string(196, '\xff'), Culprit::kServer);
  greets("hello cut short", hello.substr(0, 15));
  greets("hello with 40 bytes behind it", hello + std::string(40, '\xff'));
  greets("hello with another magic", mutated(0, 'a'));
  greets("hello of version 0", mutated(4, 0));
  greets("hello of version 3", mutated(4, 3));
  greets("hello with noise in reserved bytes", mutated(6, '\xff'));
  greets("hello without flags", raw_hello(0, 0));
  greets("hello with all flags and no interval", raw_hello(~0u, 0));
  greets("hello with all flags and the longest interval", raw_hello(~0u, ~0u));

  const auto add = [&](const char* name, Outcome outcome, const char* sentence, Culprit who) {
    HostileVector made;
    made.name = name;
    made.rule = kSetupRule;
    made.outcome = outcome;
    made.sentence = sentence;
    made.culprit = who;
    all.push_back(made);
    return &all.back();
  };
  HostileVector* each = add("request that is withdrawn at once", kNoEntry, "", Culprit::kClient);
  each->options.completes = false;
  each->ready = [](const RawPeer& p) { return p.requested; };
  each->outcome = kGone;
  each = add("answer that is never acknowledged", kNoEntry, "", Culprit::kClient);
  each->options.completes = false;
  each->ready = [](const RawPeer& p) { return p.answered; };
  each->allowance = kHostileAcceptTimeout;
  each = add("answer that is thrown away", kGone, "", Culprit::kClient);
  each->options.completes = false;
  each->ready = [](const RawPeer& p) { return p.answered; };
  each = add("answer that is rejected", kNoEntry, "", Culprit::kClient);
  each->options.completes = false;
  each->ready = [](const RawPeer& p) { return p.answered; };
  each->strike = [](RawPeer& p) { p.reject(); };
  each = add("goodbye as the first word", kGone, "", Culprit::kBoth);
  each->options.at_established = [](RawPeer& p) { p.disconnect(); };
  each->ready = stands;
  each = add("a queue pair that vanishes before the first word", kError, "", Culprit::kBoth);
  each->options = silent();
  each->options.at_established = [](RawPeer& p) { p.drop_queue_pair(); };
  each->ready = stands;
  each->allowance = kRetries;
  each =
      add("rejection with noise for a reason", kNoEntry, "refused by the server", Culprit::kServer);
  each->answer = RawNet::Answer::kReject;
  each->options.private_data = "no\x1b[2J\xff\n" + std::string(120, '\x07');
  each =
      add("rejection with 148 bytes of text", kNoEntry, "refused by the server", Culprit::kServer);
  each->answer = RawNet::Answer::kReject;
  each->options.private_data = std::string(148, 'n');
  each = add("request that is dropped", kNoEntry, "refused", Culprit::kServer);
  each->answer = RawNet::Answer::kVanish;
  each =
      add("request that is never answered", kNoEntry, "did not answer in time", Culprit::kServer);
  each->answer = RawNet::Answer::kIgnore;
  each->allowance = kHostileAcceptTimeout;
  return all;
}

}  // namespace testing
#endif
