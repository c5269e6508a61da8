// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A machine of two processors that runs code step by step. Between any two accesses of an Atomic
// either processor may be next, or may bring a store from its store buffer to memory. Stores leave
// the buffer in any order, as on AArch64, but for two rules: stores to one word keep their order,
// and a release or sequentially consistent store leaves after all earlier ones. A sequentially
// consistent load first brings all sequentially consistent stores to memory. Loads are in order.
// explore() runs the code for every order of steps. What code does next depends on its steps and
// loads alone, so that of two orders with the same loads, memory and buffers the second one is cut.

#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

namespace bell_model {

/// A rule that the code has broken.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Machine {
 public:
  static constexpr int kProcessors = 2;
  using Code = std::function<void()>;
  struct Report {
    std::uint64_t states = 0, ends = 0;
  };

  /// Runs `prepare`, then the code of both processors to its end, then `check`, for every order of
  /// steps. `shared` returns what the processors share besides the Atomics. Throws what these
  /// throw, and Violation if both processors sleep for ever.
  static Report explore(const std::function<std::array<Code, kProcessors>()>& prepare,
                        const std::function<std::uint64_t()>& shared,
                        const std::function<void()>& check);

  // --- for the code that runs on the machine ---
  static Machine& now() { return *current_; }
  /// Ends a step, and does not go on before `awake` returns true.
  void sleep(const std::function<bool()>& awake);
  /// Returns the number of a new word of memory, which holds 0.
  std::size_t add_word();
  std::uint64_t load(std::size_t word, std::memory_order order);
  /// Puts a store into the buffer of this processor.
  void store(std::size_t word, std::uint64_t value, std::memory_order order);
  /// Brings all stores of this processor to memory: the lock in the kernel through which a bell
  /// goes orders them before it.
  void before_bell();

 private:
  struct Store {
    std::size_t word;
    std::uint64_t value;
    std::memory_order order;
  };
  using Stores = std::deque<Store>;
  struct Processor {
    ucontext_t context{};
    std::vector<char> stack = std::vector<char>(std::size_t{256} << 10);
    Code code;
    bool done = false;
    std::function<bool()> awake;  // empty: it does not sleep
    Stores stores;                // that have not reached memory, in the order of the code
    std::vector<std::uint64_t> loaded;
    std::uint64_t steps = 0;
  };

  bool run(const std::function<std::uint64_t()>& shared, std::array<Code, kProcessors> code);
  bool is_new(std::uint64_t shared);
  std::size_t choose(std::size_t count);
  static bool may_leave(const Stores& stores, std::size_t index);
  void bring_to_memory(Stores& stores, std::size_t index);
  void step();
  void enter(Processor& processor);
  static void begin();

  static Machine* current_;
  std::array<Processor, kProcessors> processors_;
  Processor* running_ = nullptr;
  ucontext_t scheduler_{};
  std::exception_ptr thrown_;
  std::vector<std::size_t> chosen_, counts_;  // the choices of this run, and how many there were
  std::size_t depth_ = 0;
  std::vector<std::uint64_t> memory_;
  std::unordered_set<std::string> visited_;
};

/// What a mutation of the code would change.
enum class Mutation : std::uint8_t {
  kNone,
  kNoBarrier,  ///< a sequentially consistent store is only a release
  kNoRelease,  ///< a sequentially consistent store may pass earlier stores
  kFlag,       ///< a wish is 0 or 1 instead of a number
};
extern Mutation mutation;

/// Replaces std::atomic in the code that runs on a Machine.
template <class T>
class Atomic {
 public:
  T load(std::memory_order order) const {
    return static_cast<T>(Machine::now().load(word_, order));
  }
  void store(T value, std::memory_order order) {
    if (mutation == Mutation::kFlag && sizeof(T) == 4 && static_cast<std::uint64_t>(value) > 1)
      value = T{1};
    if (mutation == Mutation::kNoBarrier && order == std::memory_order_seq_cst)
      order = std::memory_order_release;
    Machine::now().store(word_, static_cast<std::uint64_t>(value), order);
  }

 private:
  const std::size_t word_ = Machine::now().add_word();
};

}  // namespace bell_model
