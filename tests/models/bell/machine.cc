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
    // What may happen next: a step of a processor, or a store that reaches memory.
    std::vector<std::pair<Processor*, bool>> next;
    for (Processor& each : processors_) {
      if (!each.done && (!each.awake || each.awake())) next.emplace_back(&each, true);
      if (!each.stores.empty()) next.emplace_back(&each, false);
    }
    if (next.empty()) {
      const bool all = std::all_of(processors_.begin(), processors_.end(),
                                   [](const Processor& each) { return each.done; });
      if (all) return true;
      throw Violation("a wake-up is lost: an end sleeps for ever");
    }
    if (depth_ == chosen_.size() && !is_new(shared())) return false;
    const auto [processor, steps] = next[next.size() == 1 ? 0 : choose(next.size())];
    if (steps) {
      processor->awake = nullptr;
      enter(*processor);
    } else {
      memory_[processor->stores.front().word] = processor->stores.front().value;
      processor->stores.pop_front();
    }
  }
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

std::uint64_t Machine::load(std::size_t word) {
  step();
  const auto& stores = running_->stores;
  const auto own = std::find_if(stores.rbegin(), stores.rend(),
                                [&](const Store& each) { return each.word == word; });
  const std::uint64_t value = own == stores.rend() ? memory_[word] : own->value;
  running_->loaded.push_back(value);
  return value;
}

void Machine::store(std::size_t word, std::uint64_t value, bool drains) {
  step();
  running_->stores.push_back({word, value});
  if (!drains) return;
  for (const Store& each : running_->stores) memory_[each.word] = each.value;
  running_->stores.clear();
}

}  // namespace bell_model
