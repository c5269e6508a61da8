// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs one test body in a process of its own: each run starts from the same memory, and a crash or
// a hang affects only that run.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <system_error>

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

/// `body` returns a complaint (empty: success) and fills in `sums`, which are plain numbers. It is
/// killed after one minute.
template <class Sums>
ChildRun<Sums> run_in_child(const std::function<std::string(Sums&)>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    alarm(60);
    // Removes the test framework's signal handlers, so that the child just dies of the signal.
    for (const int each : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGTERM, SIGILL})
      signal(each, SIG_DFL);
    Sums sums{};
    std::string complaint;
    try {
      complaint = body(sums).substr(0, 3000);
    } catch (const std::exception& error) {
      complaint = std::string("an exception got out: ") + error.what();
    }
    bool told = write(ends[1], &sums, sizeof sums) == sizeof sums;
    told = told && write(ends[1], complaint.data(), complaint.size()) >= 0;
    if (__gcov_dump != nullptr) __gcov_dump();
    _exit(told ? 0 : 2);
  }
  close(ends[1]);
  ChildRun<Sums> run;
  Sums sums{};
  if (read(ends[0], &sums, sizeof sums) == sizeof sums) run.sums = sums;
  char text[4096];
  for (ssize_t n = 0; (n = read(ends[0], text, sizeof text)) > 0;)
    run.complaint.append(text, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) run.complaint = "signal " + std::to_string(WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    run.complaint = "exit status " + std::to_string(WEXITSTATUS(status));
  return run;
}

}  // namespace simulation
