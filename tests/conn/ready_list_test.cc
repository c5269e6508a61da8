// SPDX-License-Identifier: BSD-3-Clause
// ReadyList against a model that has no straight path: scripts of items that queue, unqueue and
// replace each other, throw, and serve the list once more while it is served.

#include "conn/kit/ready_list.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

namespace {

constexpr std::size_t kItems = 5;
using Run = std::function<std::size_t(std::size_t index)>;

// A loop that always has time, however busy the machine is: the model has no clock.
struct Patient final : AnyLoop {
  bool has_time() noexcept override { return true; }
};

class Real {
 public:
  explicit Real(Run run) : run_(std::move(run)) {
    for (std::size_t i = 0; i < kItems; ++i) items_[i] = std::make_unique<Item>(*this, i);
  }
  void push(std::size_t i) { list_.push(*items_[i]); }
  void unqueue(std::size_t i) { items_[i]->unqueue(); }
  void renew(std::size_t i) { dead_.push_back(std::exchange(items_[i], fresh(i))); }
  bool queued(std::size_t i) const { return items_[i]->queued(); }
  std::size_t serve() { return list_.process_pending(); }
  void serve_all() { list_.process_all(); }
  bool empty() const { return list_.empty(); }

 private:
  struct Item final : conn::ReadyItem {
    Item(Real& its_owner, std::size_t its_index) : owner(its_owner), index(its_index) {}
    std::size_t run_ready() override { return owner.run_(index); }
    Real& owner;
    std::size_t index;
  };
  std::unique_ptr<Item> fresh(std::size_t i) {
    items_[i]->unqueue();
    return std::make_unique<Item>(*this, i);
  }

  Run run_;
  Patient loop_;
  conn::ReadyList list_{loop_};
  std::array<std::unique_ptr<Item>, kItems> items_;
  std::deque<std::unique_ptr<Item>> dead_;  // an item may be running when it is replaced
};

class Model {
 public:
  explicit Model(Run run) : run_(std::move(run)) {}
  void push(std::size_t i) {
    if (!queued(i)) waiting_.push_back(i);
  }
  void unqueue(std::size_t i) {
    std::erase(waiting_, i);
    std::erase(serving_, i);
  }
  void renew(std::size_t i) { unqueue(i); }
  bool queued(std::size_t i) const {
    const auto in = [i](const auto& list) {
      return std::find(list.begin(), list.end(), i) != list.end();
    };
    return in(waiting_) || in(serving_);
  }
  std::size_t serve() {
    serving_.insert(serving_.end(), waiting_.begin(), waiting_.end());
    waiting_.clear();
    std::size_t ran = 0;
    while (!serving_.empty()) {
      const std::size_t i = serving_.front();
      serving_.pop_front();
      ran += run_(i);
    }
    return ran;
  }
  void serve_all() { (void)serve(); }
  bool empty() const { return waiting_.empty() && serving_.empty(); }

 private:
  Run run_;
  std::deque<std::size_t> waiting_, serving_;
};

template <class List>
std::string play(std::uint32_t seed) {
  std::mt19937 numbers(seed);
  const auto below = [&](unsigned limit) { return static_cast<unsigned>(numbers() % limit); };
  std::string journal;
  unsigned depth = 0, runs = 0;
  List* list = nullptr;
  const auto act = [&] {
    const std::size_t i = below(kItems);
    switch (below(7)) {
      case 0:
        list->unqueue(i);
        break;
      case 1:
        list->renew(i);
        break;
      case 2:
        if (depth < 3) journal += "(" + std::to_string(list->serve()) + ")";
        break;
      case 3:
        if (depth > 0 && below(3) == 0) throw Oops{0};
        break;
      default:
        list->push(i);
    }
  };
  List its([&](std::size_t index) -> std::size_t {
    journal += static_cast<char>('a' + index);
    struct Depth {
      explicit Depth(unsigned& of) : count(of) { ++count; }
      ~Depth() { --count; }
      Depth(const Depth&) = delete;
      Depth& operator=(const Depth&) = delete;
      unsigned& count;
    } const deeper(depth);
    // Only so many, because items that queue each other would never end a nested call.
    if (++runs > 400) return 1;
    for (unsigned n = below(3); n != 0; --n) act();
    return below(3);
  });
  list = &its;
  for (int step = 0; step < 60; ++step) {
    try {
      for (unsigned n = below(3); n != 0; --n) act();
      if (below(5) == 0) {
        list->serve_all();
      } else {
        journal += std::to_string(list->serve());
      }
    } catch (const Oops&) {
      journal += '!';
    }
    for (std::size_t i = 0; i < kItems; ++i) journal += list->queued(i) ? '1' : '0';
    journal += list->empty() ? ".\n" : ",\n";
  }
  return journal;
}

}  // namespace

TEST_CASE("ready list: items may do anything to it while it is served", "[conn][lifetime]") {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    INFO("seed " << seed);
    REQUIRE(play<Real>(seed) == play<Model>(seed));
  }
}
