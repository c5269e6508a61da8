// SPDX-License-Identifier: BSD-3-Clause
#include "tests/models/bell/machine.h"

#include <algorithm>
#include <utility>

namespace bell_model {

Machine* Machine::current_ = nullptr;
Mutation mutation = Mutation::kNone;

Machine::Report Machine::explore(const std::function<std::array<Code, kProcessors>()>& prepare,
                                 const std::function<std::uint64_t()>& shared,
                                 const std::function<void()>& check) {
  Machine machine;
  current_ = &machine;
  Report report;
  for (;;) {
    machine.memory_.clear();
    if (machine.run(shared, prepare())) {
      ++report.ends;
      check();
    }
    // The next order of steps: the last choice that has another alternative takes it.
    while (!machine.chosen_.empty() && machine.chosen_.back() + 1 == machine.counts_.back()) {
      machine.chosen_.pop_back();
      machine.counts_.pop_back();
    }
    if (machine.chosen_.empty()) break;
    ++machine.chosen_.back();
  }
  report.states = machine.visited_.size();
  return report;
}

/// Whether this state was not reached before.
bool Machine::is_new(std::uint64_t shared) {
  std::string state;
  const auto add = [&](std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) state += static_cast<char>(number | 0x80);
    state += static_cast<char>(number);
  };
  add(shared);
  for (const std::uint64_t word : memory_) add(word);
  for (const Processor& each : processors_) {
    add(each.steps);
    for (const std::uint64_t value : each.loaded) add(value);
    add(each.stores.size());
    for (const Store& store : each.stores) {
      add(store.word);
      add(store.value);
      add(static_cast<std::uint64_t>(store.order));
    }
  }
  return visited_.insert(std::move(state)).second;
}

void Machine::begin() {
  Machine& machine = now();
  Processor& self = *machine.running_;
  try {
    self.code();
  } catch (...) {
    machine.thrown_ = std::current_exception();
  }
  self.done = true;
  swapcontext(&self.context, &machine.scheduler_);
}

void Machine::enter(Processor& processor) {
  running_ = &processor;
  ++processor.steps;
  swapcontext(&scheduler_, &processor.context);
  running_ = nullptr;
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

std::size_t Machine::choose(std::size_t count) {
  if (depth_ == chosen_.size()) {
    chosen_.push_back(0);
    counts_.push_back(count);
  }
  return chosen_[depth_++];
}

/// Returns false if the run was cut, because it came to a state that was reached before.
bool Machine::run(const std::function<std::uint64_t()>& shared,
                  std::array<Code, kProcessors> code) {
  depth_ = 0;
  for (std::size_t i = 0; i < code.size(); ++i) {
    Processor& each = processors_[i];
    each.code = std::move(code[i]);
    each.done = false;
    each.awake = nullptr;
    each.stores.clear();
    each.loaded.clear();
    each.steps = 0;
    getcontext(&each.context);
    each.context.uc_stack.ss_sp = each.stack.data();
    each.context.uc_stack.ss_size = each.stack.size();
    each.context.uc_link = nullptr;
    makecontext(&each.context, &Machine::begin, 0);
  }
  for (;;) {
    // What may happen next: a step of a processor, or the store with this index reaches memory.
    constexpr auto kStep = static_cast<std::size_t>(-1);
    std::vector<std::pair<Processor*, std::size_t>> next;
    for (Processor& each : processors_) {
      if (!each.done && (!each.awake || each.awake())) next.emplace_back(&each, kStep);
      for (std::size_t i = 0; i < each.stores.size(); ++i)
        if (may_leave(each.stores, i)) next.emplace_back(&each, i);
    }
    if (next.empty()) {
      const bool all = std::all_of(processors_.begin(), processors_.end(),
                                   [](const Processor& each) { return each.done; });
      if (all) return true;
      throw Violation("a wake-up is lost: an end sleeps for ever");
    }
    if (depth_ == chosen_.size() && !is_new(shared())) return false;
    const auto [processor, what] = next[next.size() == 1 ? 0 : choose(next.size())];
    if (what == kStep) {
      processor->awake = nullptr;
      enter(*processor);
    } else {
      bring_to_memory(processor->stores, what);
    }
  }
}

/// Whether no earlier store has to reach memory before this one.
bool Machine::may_leave(const Stores& stores, std::size_t index) {
  const bool passes =
      stores[index].order == std::memory_order_relaxed || (mutation == Mutation::kNoRelease);
  const auto end = stores.begin() + static_cast<std::ptrdiff_t>(index);
  return index == 0 || (passes && std::none_of(stores.begin(), end, [&](const Store& each) {
                          return each.word == stores[index].word;
                        }));
}

void Machine::bring_to_memory(Stores& stores, std::size_t index) {
  memory_[stores[index].word] = stores[index].value;
  stores.erase(stores.begin() + static_cast<std::ptrdiff_t>(index));
}

void Machine::step() { swapcontext(&running_->context, &scheduler_); }

void Machine::sleep(const std::function<bool()>& awake) {
  running_->awake = awake;
  step();
}

std::size_t Machine::add_word() {
  memory_.push_back(0);
  return memory_.size() - 1;
}

std::uint64_t Machine::load(std::size_t word, std::memory_order order) {
  step();
  Stores& stores = running_->stores;
  if (order == std::memory_order_seq_cst) {
    const auto last = std::find_if(stores.rbegin(), stores.rend(), [](const Store& each) {
      return each.order == std::memory_order_seq_cst;
    });
    for (auto left = stores.rend() - last; left > 0; --left) bring_to_memory(stores, 0);
  }
  const auto own = std::find_if(stores.rbegin(), stores.rend(),
                                [&](const Store& each) { return each.word == word; });
  const std::uint64_t value = own == stores.rend() ? memory_[word] : own->value;
  running_->loaded.push_back(value);
  return value;
}

void Machine::store(std::size_t word, std::uint64_t value, std::memory_order order) {
  step();
  running_->stores.push_back({word, value, order});
}

void Machine::before_bell() {
  while (!running_->stores.empty()) bring_to_memory(running_->stores, 0);
}

}  // namespace bell_model
