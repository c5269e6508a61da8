// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A process that is killed right after its Nth step that its peer can see: a store to its page of
// words, or a call on its socket. It runs the library as it is. Its page is protected against
// writing, so that each store faults; the handler lets that one instruction write, and the
// processor traps after it (the trap flag of x86-64).

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "conn/shm/ring.h"
#include "tests/support/catch.h"
#include "tests/support/socket_calls.h"

#if defined(__x86_64__)

namespace testing {

/// What the process has done, in memory that it shares with the test.
struct Steps {
  std::atomic<bool> ready{false};  ///< for the process's use
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::size_t> last{0};    ///< offset of the word stored last, or kCall
  std::atomic<std::uint64_t> tail{0};  ///< number of bytes that the peer can see
  std::atomic<bool> fin{false}, closed{false};
  /// By offset: whether the process has stored this word.
  std::array<std::atomic<bool>, sizeof(conn::shm::Words)> stored{};
  static constexpr std::size_t kCall = sizeof(conn::shm::Words);
};

/// When the process is killed: after this step, or after it first stores this word.
struct KillAfter {
  std::uint64_t step = 0;           ///< 1: the first; 0: none
  std::size_t word = Steps::kCall;  ///< offset; kCall: none
};

/// In the process: counts its steps, and kills it.
class StepCounter {
 public:
  StepCounter(Steps& steps, KillAfter last) {
    steps_ = &steps;
    last_ = last;
    handle(SIGSEGV, &on_fault);
    handle(SIGTRAP, &on_trap);
    calls_.after = [] {
      if (page_ == nullptr) protect_words();
      step(Steps::kCall);
    };
  }

 private:
  static constexpr greg_t kTrapFlag = 0x100;

  static void handle(int signal, void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction action {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(signal, &action, nullptr);
  }
  /// Finds the memory that this process writes. It exists once the hello or its answer is sent.
  static void protect_words() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(" rw-s ") == line.npos || line.find("memfd:aeconn") == line.npos) continue;
      page_ = reinterpret_cast<std::byte*>(std::strtoull(line.c_str(), nullptr, 16));
      protect(PROT_READ);
      return;
    }
  }
  static void protect(int protection) { mprotect(page_, conn::shm::kPage, protection); }
  static void on_fault(int, siginfo_t* info, void* context) {
    const auto* const at = static_cast<std::byte*>(info->si_addr);
    if (page_ == nullptr || at < page_ || at >= page_ + sizeof(conn::shm::Words)) {
      ::signal(SIGSEGV,
               SIG_DFL);  // another fault: the instruction is repeated, and ends the process
      return;
    }
    stored_ = static_cast<std::size_t>(at - page_);
    protect(PROT_READ | PROT_WRITE);
    flags(context) |= kTrapFlag;
  }
  static void on_trap(int, siginfo_t*, void* context) {
    flags(context) &= ~kTrapFlag;
    protect(PROT_READ);
    const auto& words = *reinterpret_cast<const conn::shm::Words*>(page_);
    steps_->tail = words.tail.load();
    steps_->fin = words.fin != 0;
    steps_->closed = words.closed != 0;
    steps_->stored[stored_] = true;
    step(stored_);
  }
  static greg_t& flags(void* context) {
    return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL];
  }
  static void step(std::size_t what) {
    steps_->last = what;
    const bool is_last = what == last_.word && what != Steps::kCall;
    if (++steps_->count == last_.step || is_last) kill(getpid(), SIGKILL);
  }

  static inline Steps* steps_ = nullptr;
  static inline KillAfter last_;
  static inline std::byte* page_ = nullptr;
  static inline std::size_t stored_ = 0;  // offset of the word that is being stored
  SocketCalls calls_;
};

/// A child that runs a function, and is killed after its step `last` if it gets there. The function
/// must not throw. The child is forked at once.
class KilledPeer {
 public:
  template <class Run>
  KilledPeer(KillAfter last, unsigned seconds, Run run) {
    void* const memory =
        mmap(nullptr, sizeof(Steps), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    steps_ = new (memory) Steps;
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) return;
    alarm(seconds);
    StepCounter counter(*steps_, last);
    run(*steps_);
    _exit(0);
  }
  KilledPeer(const KilledPeer&) = delete;
  KilledPeer& operator=(const KilledPeer&) = delete;
  ~KilledPeer() {
    if (!over_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    munmap(steps_, sizeof *steps_);
  }

  const Steps& steps() const noexcept { return *steps_; }
  /// Whether the process has ended.
  bool over() {
    if (!over_) over_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    return over_;
  }
  bool killed() const { return over_ && WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL; }
  /// Whether it came to its end before that step.
  bool finished() const { return over_ && WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

 private:
  Steps* steps_ = nullptr;
  pid_t pid_ = -1;
  bool over_ = false;
  int status_ = 0;
};

}  // namespace testing

#endif
