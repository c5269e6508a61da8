// SPDX-License-Identifier: BSD-3-Clause
// HandlerSlot: a handler may do anything to its slot while it runs, which it does in place.

#include "ae/core/handler_slot.h"

#include <functional>
#include <memory>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

namespace {

using Slot = ae::HandlerSlot<void(int)>;

/// Two words, as many as std::function keeps inside itself: replacing the running function in place
/// would change them.
struct Small {
  std::string* journal;
  const char* text;
};

}  // namespace

TEST_CASE("handler slot: an empty one runs nothing", "[ae]") {
  Slot slot;
  CHECK_FALSE(slot);
  slot.run(1);
  CHECK_FALSE(slot.running());
  CHECK_FALSE(slot.take());
  slot.clear();
  slot.set(nullptr);
  CHECK_FALSE(slot);
}

TEST_CASE("handler slot: what the running handler captured stays when it is replaced", "[ae]") {
  std::string journal;
  Slot slot;
  struct Handler {
    Slot* slot;
    Small* mine;
    void operator()(int) const {
      *mine->journal += "begin ";
      std::string* const out = mine->journal;
      slot->set([out](int value) { *out += "second" + std::to_string(value) + " "; });
      slot->set([out](int value) { *out += "third" + std::to_string(value) + " "; });
      CHECK(*slot);
      CHECK_FALSE(slot->running());  // its successor could run
      *mine->journal += mine->text;
    }
  };
  Small mine{&journal, "end "};
  slot.set(Handler{&slot, &mine});
  slot.run(1);
  slot.run(2);
  slot.run(3);
  CHECK(journal == "begin end third2 third3 ");
}

TEST_CASE("handler slot: what a handler owns lives until it has returned", "[ae][lifetime]") {
  Slot slot;
  auto owned = std::make_shared<int>(7);
  const std::weak_ptr<int> seen = owned;
  int value = 0;
  const bool replaces = GENERATE(true, false);
  slot.set([&slot, &value, replaces, own = std::move(owned)](int) {
    if (replaces)
      slot.set([](int) {});
    else
      slot.clear();
    CHECK(static_cast<bool>(slot) == replaces);
    CHECK_FALSE(slot.running());
    value = *own;
  });
  slot.run(0);
  CHECK(value == 7);
  CHECK(seen.expired());
  CHECK(static_cast<bool>(slot) == replaces);
}

TEST_CASE("handler slot: a nested call runs a successor, never the running handler", "[ae]") {
  std::string journal;
  Slot slot;
  slot.set([&](int depth) {
    journal += "a" + std::to_string(depth) + " ";
    CHECK(slot.running());
    CHECK(slot);
    slot.run(depth + 1);  // does nothing
    slot.set([&](int inner) {
      journal += "b" + std::to_string(inner) + " ";
      CHECK(slot.running());
      slot.run(inner + 1);  // does nothing
      slot.set([&](int last) { journal += "c" + std::to_string(last) + " "; });
      slot.run(inner + 2);
      journal += "b-end ";
    });
    CHECK_FALSE(slot.running());
    slot.run(depth + 10);
    CHECK_FALSE(slot.running());
    slot.run(depth + 20);
    journal += "a-end ";
  });
  slot.run(1);
  slot.run(2);
  CHECK(journal == "a1 b11 c13 b-end c21 a-end c2 ");
}

TEST_CASE("handler slot: a nested call of a removed handler runs nothing", "[ae]") {
  Slot slot;
  int calls = 0;
  slot.set([&](int) {
    ++calls;
    slot.clear();
    slot.run(0);
    CHECK_FALSE(slot.take());
  });
  slot.run(0);
  slot.run(0);
  CHECK(calls == 1);
}

TEST_CASE("handler slot: take() leaves a running handler in its call", "[ae]") {
  Slot slot;
  int calls = 0;
  slot.set([&](int) {
    CHECK_FALSE(slot.take());
    CHECK_FALSE(slot);
    ++calls;
  });
  slot.run(0);
  slot.run(0);
  CHECK(calls == 1);
  slot.set([&](int) { calls += 10; });
  const Slot::Function taken = slot.take();
  CHECK_FALSE(slot);
  taken(0);
  CHECK(calls == 11);
  slot.set([&](int) {
    slot.set([&](int) { calls += 100; });
    const Slot::Function successor = slot.take();
    REQUIRE(successor);
    successor(0);
  });
  slot.run(0);
  CHECK(calls == 111);
  CHECK_FALSE(slot);
}

TEST_CASE("handler slot: a handler that throws stays, or what replaced it", "[ae]") {
  Slot slot;
  std::string journal;
  const bool replaces = GENERATE(true, false);
  slot.set([&](int) {
    journal += "a ";
    if (replaces) slot.set([&](int) { journal += "b "; });
    if (journal == "a ") throw Oops{1};
  });
  CHECK_THROWS_AS(slot.run(0), Oops);
  CHECK_FALSE(slot.running());
  slot.run(0);
  CHECK(journal == (replaces ? "a b " : "a a "));
}

TEST_CASE("handler slot: the destructor of a replaced handler may use the slot, or end it",
          "[ae][lifetime]") {
  struct AtEnd {
    explicit AtEnd(std::function<void()> what) : then(std::move(what)) {}
    AtEnd(const AtEnd&) = delete;
    AtEnd& operator=(const AtEnd&) = delete;
    ~AtEnd() { then(); }
    std::function<void()> then;
  };
  auto slot = std::make_unique<Slot>();
  int calls = 0;
  SECTION("it sets another handler") {
    auto end = std::make_shared<AtEnd>([&] { slot->set([&](int) { calls += 10; }); });
    slot->set([&slot, own = std::move(end)](int) { slot->clear(); });
    slot->run(0);
    CHECK(*slot);
    slot->run(0);
    CHECK(calls == 10);
  }
  SECTION("it destroys the slot") {
    auto end = std::make_shared<AtEnd>([&] { slot.reset(); });
    slot->set([&slot, own = std::move(end)](int) { slot->clear(); });
    slot->run(0);
    CHECK(slot == nullptr);
  }
  SECTION("a handler that does not run, replaced") {
    auto end = std::make_shared<AtEnd>([&] { slot->set([&](int) { calls += 100; }); });
    slot->set([own = std::move(end)](int) {});
    slot->set([&](int) { ++calls; });
    slot->run(0);
    CHECK(calls == 100);  // the destructor came last
  }
}
