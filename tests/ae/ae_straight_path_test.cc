// SPDX-License-Identifier: BSD-3-Clause
// The straight paths of an iteration (one source, one event, a settled loop) do what the full ones
// do.
//
// Method: a script, chosen by a seed, says what each call of a source, hook, file handler, post and
// timer does to the loop. It is played twice: on a loop that has only these, which takes the
// straight paths, and on one that also has sources without work, an idle hook and a second ready
// file, which takes the full paths. What happened must be the same, step by step.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

namespace {

/// A small generator of numbers, the same everywhere.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 2654435761u + 12345) {}
  unsigned below(unsigned limit) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<unsigned>((state_ >> 20) % limit);
  }
  bool one_in(unsigned count) { return below(count) == 0; }

 private:
  std::uint64_t state_;
};

enum class Extra { kNone, kBefore, kAfter };
/// kSource: a source is nearly always there. kFile: mostly there is only a file, as in a server
/// over sockets, so that a loop that runs settles in between. kBoth: both are there, as in a server
/// over rdma, and a loop that runs settles as well.
enum class Mostly { kSource, kFile, kBoth };

class Play {
 public:
  Play(std::uint64_t seed, Extra extra, Mostly mostly)
      : numbers_(seed), extra_(extra), mostly_(mostly) {
    sockets_.send();
    others_.send();
    if (extra_ == Extra::kBefore) add_extra();
    if (mostly_ != Mostly::kFile) add_source();
    add_file(0);
    if (extra_ == Extra::kAfter) add_extra();
  }
  Play(const Play&) = delete;
  Play& operator=(const Play&) = delete;
  ~Play() {
    for (const auto& each : sources_) loop_.remove_source(*each);
    for (TestSource& each : idle_) loop_.remove_source(each);
    loop_.remove_file_event(sockets_.near, kReadable | kWritable);
    loop_.remove_file_event(others_.near, kReadable);
  }

  std::string steps(int count) {
    for (int i = 0; i < count; ++i) step();
    return std::move(journal_);
  }

 private:
  static constexpr std::size_t kMostSources = 4;

  void add_extra() {
    for (TestSource& each : idle_) loop_.add_source(each);
    loop_.add_before_sleep([] {});
    loop_.add_after_sleep([] {});
    loop_.add_file_event(others_.near, kReadable, [this](int, Mask) { ++extra_calls_; });
  }

  void step() {
    // Without the file, which is always ready, an iteration might sleep for ever.
    if ((loop_.file_events(sockets_.near) & kReadable) == 0) add_file(0);
    static constexpr std::array kFlags{kFullIteration,
                                       kFullIteration,
                                       kPoll,
                                       kFileEvents,
                                       kFileEvents | kDontWait,
                                       kTimeEvents | kDontWait,
                                       ae::kAllEvents,
                                       ae::kAllEvents | ae::kCallAfterSleep,
                                       static_cast<ae::Process>(0)};
    extra_calls_ = 0;
    const bool runs = numbers_.one_in(4);
    try {
      if (runs) {
        journal_ += "run";
        left_ = 1 + static_cast<int>(numbers_.below(mostly_ == Mostly::kSource ? 5 : 30));
        loop_.run();
      } else {
        const ae::Process flags = kFlags[numbers_.below(kFlags.size())];
        journal_ += "process" + std::to_string(flags);
        const std::size_t ran = loop_.process_events(flags);
        journal_ += ":" + std::to_string(ran - extra_calls_);
      }
    } catch (const Oops& oops) {
      journal_ += " thrown" + std::to_string(oops.where);
    }
    left_ = 0;
    CHECK_FALSE(loop_.in_handler());
    journal_ += "\n";
  }

  /// What the call of `name` does; any call may do any of it.
  void act(const char* name) {
    journal_ += ' ';
    journal_ += name;
    // With both, there are several calls in each iteration.
    static constexpr std::array kOneIn{5u, 8u, 40u};
    if (!numbers_.one_in(kOneIn[static_cast<std::size_t>(mostly_)])) return;
    const unsigned what = numbers_.below(13);
    journal_ += '!' + std::to_string(what);
    switch (what) {
      case 0:
        if (mostly_ != Mostly::kFile || numbers_.one_in(4)) add_source();
        break;
      case 1:
        remove_source();
        break;
      case 2:  // a source leaves and comes back, or another one comes at the same address
        if (sources_.empty()) break;
        loop_.remove_source(*sources_.front());
        loop_.add_source(*sources_.front());
        break;
      case 3:
        loop_.post([this] { act("post"); });
        break;
      case 4:
        loop_.destroy_later(thing([this] { journal_ += " destroyed"; }));
        break;
      case 5:
        loop_.stop();
        break;
      case 6:
        loop_.add_time_event(0ms, [this] { return act("timer"), kNoMore; });
        break;
      case 7:
        if (sources_.empty()) break;
        sources_.back()->pending = 1 + static_cast<int>(numbers_.below(3));
        sources_.back()->wake();
        break;
      case 8: {
        const auto hook = std::make_shared<ae::HookId>(0);
        const auto once = [this, hook] {
          loop_.remove_hook(*hook);
          act("hook");
        };
        *hook = numbers_.one_in(2) ? loop_.add_before_sleep(once) : loop_.add_after_sleep(once);
        break;
      }
      case 9:
        if (!sources_.empty()) sources_.front()->vetoes = 1 + static_cast<int>(numbers_.below(2));
        break;
      case 10:
        if (TestSource* const source = any_source(); source != nullptr) {
          source->pending = 0;
          source->rest();
        }
        break;
      case 11:
        if (TestSource* const source = any_source(); source != nullptr) source->wake();
        break;
      default:
        throw Oops{++thrown_};
    }
  }

  TestSource* any_source() {
    if (sources_.empty()) return nullptr;
    return sources_[numbers_.below(static_cast<unsigned>(sources_.size()))].get();
  }
  void add_source() {
    if (sources_.size() == kMostSources) return;
    auto source = std::make_unique<TestSource>(nullptr);
    source->on_process = [this] { act("process"); };
    source->on_flush = [this] { act("flush"); };
    source->on_arm = [this] { act("arm"); };
    loop_.add_source(*source);
    sources_.push_back(std::move(source));
  }
  void remove_source() {
    if (sources_.empty()) return;
    loop_.remove_source(*sources_.front());
    // It may be running: it is destroyed when no handler is on the stack.
    loop_.destroy_later(
        thing([source = std::shared_ptr<TestSource>(std::move(sources_.front()))] {}));
    sources_.erase(sources_.begin());
  }

  /// Sets the handler of the file, which may replace or remove itself.
  void add_file(int generation) {
    loop_.add_file_event(sockets_.near, kReadable, [this, generation](int fd, Mask ready) {
      journal_ += ready == kReadable ? " read" : " write";
      journal_ += std::to_string(generation);
      if (left_ != 0 && --left_ == 0) loop_.stop();
      if (numbers_.one_in(4)) add_file(generation + 1);
      // In run() the file has to stay, because it ends the sleeps.
      if (left_ == 0 && numbers_.one_in(8)) loop_.remove_file_event(fd, kReadable);
      if (numbers_.one_in(8)) {
        loop_.add_file_event(fd, kWritable | (numbers_.one_in(2) ? kBarrier : ae::kNone),
                             [this, generation](int same, Mask) {
                               loop_.remove_file_event(same, kWritable);
                               act(("write" + std::to_string(generation)).c_str());
                             });
      }
      act("file");
    });
  }

  Sockets sockets_, others_;
  Numbers numbers_;
  const Extra extra_;
  const Mostly mostly_;
  std::string journal_;
  std::vector<std::unique_ptr<TestSource>> sources_;
  std::array<TestSource, 2> idle_{TestSource(nullptr), TestSource(nullptr)};
  std::size_t extra_calls_ = 0;
  int left_ = 0;
  int thrown_ = 0;
  AnyLoop loop_;  // the last member: its end runs what was posted, which uses the others
};

}  // namespace

namespace {

void play_both(Mostly mostly) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const std::string straight = Play(seed, Extra::kNone, mostly).steps(40);
    const Extra extra = seed % 2 == 0 ? Extra::kBefore : Extra::kAfter;
    const std::string full = Play(seed, extra, mostly).steps(40);
    INFO("seed " << seed);
    REQUIRE(straight == full);
  }
}

}  // namespace

TEST_CASE("event loop: one source and one event are served as several are", "[ae][lifetime]") {
  play_both(Mostly::kSource);
}

TEST_CASE("event loop: a settled loop does what one with idle hooks and sources does",
          "[ae][lifetime]") {
  play_both(GENERATE(Mostly::kFile, Mostly::kBoth));
}
