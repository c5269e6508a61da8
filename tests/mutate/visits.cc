// SPDX-License-Identifier: BSD-3-Clause
// Records which blocks of the library each test runs, for tests/mutate/visits.py: g++ calls
// __sanitizer_cov_trace_pc() at the beginning of each block, and tests/support/main.cc reports
// which test is running. Each line of the file that AECONN_TEST_VISITS names is one test: its name,
// its duration in seconds, and the blocks' addresses in the program.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

extern "C" {
extern const char __executable_start[], etext[];  // defined by the linker
void __sanitizer_cov_trace_pc();
void test_begins();
void test_ends(const char* name);
}

namespace {

// One byte for each address of the program's text, shared with children that a test forks. System
// calls are made directly, since the simulation's programs replace the functions.
unsigned char* seen = nullptr;
double begun = 0;

std::size_t size() { return static_cast<std::size_t>(etext - __executable_start); }

double now() {
  timespec at{};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &at);
  return static_cast<double>(at.tv_sec) + static_cast<double>(at.tv_nsec) / 1e9;
}

}  // namespace

void __sanitizer_cov_trace_pc() {
  if (seen == nullptr) return;
  const auto at = static_cast<const char*>(__builtin_return_address(0)) - __executable_start;
  if (at >= 0 && static_cast<std::size_t>(at) < size()) seen[at] = 1;
}

void test_begins() {
  if (seen == nullptr) {
    const auto room = syscall(SYS_mmap, nullptr, size(), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (room == -1) std::abort();
    seen = reinterpret_cast<unsigned char*>(room);
  }
  std::memset(seen, 0, size());
  begun = now();
}

void test_ends(const char* name) {
  const double seconds = now() - begun;
  const char* path = std::getenv("AECONN_TEST_VISITS");
  std::FILE* file = path != nullptr ? std::fopen(path, "a") : nullptr;
  if (file == nullptr) return;
  std::fprintf(file, "%s\t%.3f\t", name, seconds);
  for (std::size_t at = 0; at < size(); ++at) {
    if (seen[at] != 0) std::fprintf(file, " %zx", at);
  }
  std::fprintf(file, "\n");
  std::fclose(file);
}
