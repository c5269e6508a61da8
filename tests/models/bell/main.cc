// SPDX-License-Identifier: BSD-3-Clause
// build/tests/bell-model: runs the ring of conn/shm/ring.h, its bells and its wishes for every
// order of steps of two processors with store buffers. README.md explains the words;
// tests/models/run reads what is printed. The status is 1 if a rule was broken, 2 for words that
// are not understood.

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "conn/shm/ring.h"
#include "tests/models/bell/machine.h"

namespace bell_model { namespace {

using conn::shm::BasicReader;
using conn::shm::BasicWords;
using conn::shm::BasicWriter;

struct Options {
  unsigned bytes = 2;  // bytes that are written, one at a time
  unsigned ring = 8;
  bool fin = false;   // whether the writer ends the stream
  bool looks = true;  // whether an end looks once more after its wish
};

/// Both ends, and the bells under way to each.
struct World {
  explicit World(const Options& its) : options(its) {}

  void write() {
    for (unsigned i = 0; i < options.bytes; ++i) {
      const char byte = static_cast<char>('a' + i);
      while (writer.put(&byte, 1, [&] { ring(to_reader); }) == 0) wait_for_room();
      cells[i % options.ring].store(written[i % options.ring], std::memory_order_relaxed);
      writer.publish([&] { ring(to_reader); });
    }
    if (!options.fin) return;
    writer.finish();
    ring(to_reader);
  }
  void wait_for_room() {
    writer.wish();
    if (options.looks) writer.look();
    if (!options.looks || writer.room() == 0)
      Machine::now().sleep([this] { return to_writer != 0; });
    to_writer = 0;
    writer.unwish();
    writer.look();
  }
  void read() {
    for (;;) {
      if (reader.unread() == 0) (void)reader.look();
      if (reader.unread() != 0) {
        const std::size_t at = got % options.ring;
        seen[at] = cells[at].load(std::memory_order_relaxed);
        char byte = 0;
        (void)reader.get(&byte, 1, [&] { ring(to_writer); });
        if (byte != static_cast<char>('a' + got++)) throw Violation("another byte was read");
        if (got == options.bytes && !options.fin) return;
        continue;
      }
      if (reader.broken() != nullptr || writer.broken() != nullptr)
        throw Violation("an honest end broke a rule");
      if (reader.finished()) {
        if (got != options.bytes) throw Violation("the stream ended before its last byte");
        return;
      }
      reader.wish();
      if (options.looks) (void)reader.look();
      if (!options.looks || (reader.unread() == 0 && !reader.finished()))
        Machine::now().sleep([this] { return to_reader != 0; });
      to_reader = 0;
      reader.unwish();
    }
  }
  void ring(unsigned& bells) {
    Machine::now().before_bell();
    ++bells;
    ++(&bells == &to_reader ? rung_to_reader : rung_to_writer);
  }
  void check() const {
    if (rung_to_reader > reader.wishes() + 1 || rung_to_writer > writer.wishes())
      throw Violation("a bell was rung that nobody wished for");
  }

  const Options options;
  std::unique_ptr<BasicWords<Atomic>> writers = std::make_unique<BasicWords<Atomic>>();
  std::unique_ptr<BasicWords<Atomic>> readers = std::make_unique<BasicWords<Atomic>>();
  // The bytes of the ring as the writer's processor and the reader's see them; in between they are
  // stores of the machine.
  std::array<Atomic<std::byte>, 8> cells;
  std::array<std::byte, 8> written{}, seen{};
  BasicWriter<Atomic> writer{*writers, *readers, written.data(), options.ring};
  BasicReader<Atomic> reader{*readers, *writers, seen.data(), options.ring};
  unsigned to_reader = 0, to_writer = 0;  // bells that were not heard yet
  std::uint64_t rung_to_reader = 0, rung_to_writer = 0;
  unsigned got = 0;
};

bool parse(std::string_view word, Options& options) {
  const std::size_t at = word.find('=');
  if (at == std::string_view::npos) return false;
  const std::string_view key = word.substr(0, at), value = word.substr(at + 1);
  const unsigned number = value.size() == 1 && value[0] >= '1' && value[0] <= '9'
                              ? static_cast<unsigned>(value[0] - '0')
                              : 0;
  if (key == "bytes" && number != 0) return options.bytes = number, true;
  if (key == "ring" && (number == 1 || number == 2 || number == 4 || number == 8))
    return options.ring = number, true;
  if (key == "fin" && (value == "yes" || value == "no")) return options.fin = value == "yes", true;
  if (key != "mutation") return false;
  if (value == "no-look") return options.looks = false, true;
  if (value == "no-barrier") return mutation = Mutation::kNoBarrier, true;
  if (value == "no-release") return mutation = Mutation::kNoRelease, true;
  if (value == "flag") return mutation = Mutation::kFlag, true;
  return value == "none";
}

int run(int count, char** words) {
  Options options;
  for (int i = 0; i < count; ++i) {
    if (parse(words[i], options)) continue;
    std::fprintf(stderr, "bell-model: %s: not understood\n", words[i]);
    return 2;
  }
  std::unique_ptr<World> world;
  std::string violation;
  Machine::Report report;
  try {
    report = Machine::explore(
        [&]() -> std::array<Machine::Code, Machine::kProcessors> {
          world = std::make_unique<World>(options);
          return {[&] { world->write(); }, [&] { world->read(); }};
        },
        [&] { return std::uint64_t{world->to_reader} << 8 | world->to_writer; },
        [&] { world->check(); });
  } catch (const Violation& broken) {
    violation = broken.what();
  }
  std::printf("states: %llu\n", static_cast<unsigned long long>(report.states));
  if (!violation.empty()) std::printf("violation: %s\n", violation.c_str());
  return violation.empty() ? 0 : 1;
}

}  // namespace
}  // namespace bell_model

int main(int argc, char** argv) { return bell_model::run(argc - 1, argv + 1); }
