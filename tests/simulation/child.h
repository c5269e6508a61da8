// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs a test body in a process of its own: each run starts from the same memory, and a crash or a
// hang affects only that run. Where a new process costs more than the body, several runs share one.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

extern "C" void __gcov_dump() __attribute__((weak));  // _exit() does not write counters

namespace simulation {

/// A torture test tries each number, or each AECONN_TORTURE_STRIDE-th from AECONN_TORTURE_FIRST on:
/// under sanitizers a complete test takes too long to run each day.
struct Stride {
  std::uint64_t first = number("AECONN_TORTURE_FIRST"), each = number("AECONN_TORTURE_STRIDE");

 private:
  static std::uint64_t number(const char* name) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
  }
};

template <class Sums>
struct ChildRun {
  std::string complaint;  ///< what was wrong, or how the process died; empty: success
  Sums sums{};
};

/// Runs `body` for numbers from 0 to `count` - 1 in one child. It returns a complaint (empty:
/// success) and fills in its sums, which are plain numbers; the child ends after the first
/// complaint, and is killed when one call takes a minute. Returns a result for each call that was
/// made, at least one.
template <class Sums>
std::vector<ChildRun<Sums>> run_several_in_child(
    std::uint64_t count, const std::function<std::string(std::uint64_t number, Sums&)>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  constexpr std::size_t kMostText = 3000;
  if (child == 0) {
    // Removes the test framework's signal handlers, so that the child just dies of the signal.
    for (const int each : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGTERM, SIGILL})
      signal(each, SIG_DFL);
    bool told = true;
    std::string complaint;
    for (std::uint64_t number = 0; number < count && told && complaint.empty(); ++number) {
      alarm(600);  // of real time: of a crowd of connections on a slow machine, too
      Sums sums{};
      try {
        complaint = body(number, sums).substr(0, kMostText);
      } catch (const std::exception& error) {
        complaint = std::string("an exception got out: ") + error.what();
        complaint.resize(std::min(complaint.size(), kMostText));
      }
      std::string result(reinterpret_cast<const char*>(&sums), sizeof sums);
      const std::size_t size = complaint.size();
      result.append(reinterpret_cast<const char*>(&size), sizeof size).append(complaint);
      told = write(ends[1], result.data(), result.size()) == static_cast<ssize_t>(result.size());
    }
    if (__gcov_dump != nullptr) __gcov_dump();
    _exit(told ? 0 : 2);
  }
  close(ends[1]);
  std::vector<ChildRun<Sums>> runs;
  const auto get = [&](void* into, std::size_t size) {
    std::size_t got = 0;
    for (ssize_t n = 0; got < size; got += static_cast<std::size_t>(n))
      if ((n = read(ends[0], static_cast<char*>(into) + got, size - got)) <= 0) return false;
    return true;
  };
  ChildRun<Sums> next;
  for (std::size_t size = 0; get(&next.sums, sizeof next.sums) && get(&size, sizeof size);
       next = {}) {
    next.complaint.resize(std::min(size, kMostText));
    if (!get(next.complaint.data(), next.complaint.size())) break;
    runs.push_back(next);
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  std::string end;
  if (WIFSIGNALED(status)) end = "signal " + std::to_string(WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    end = "exit status " + std::to_string(WEXITSTATUS(status));
  if (end.empty() && runs.empty()) end = "no result";
  if (!end.empty()) {
    // It ended in the call after the last result, or, with all results, after the last call.
    if (runs.empty() || (runs.size() < count && runs.back().complaint.empty())) runs.emplace_back();
    runs.back().complaint = end;
  }
  return runs;
}

/// Runs `body` once in a child.
template <class Sums>
ChildRun<Sums> run_in_child(const std::function<std::string(Sums&)>& body) {
  return run_several_in_child<Sums>(
             1, [&](std::uint64_t, Sums& sums) -> std::string { return body(sums); })
      .front();
}

}  // namespace simulation
