// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs a part of a test in a child of fork(), for what a process cannot undo: giving up the rights
// of root, and forbidding itself system calls.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

namespace testing {

/// Runs `body` in a child and returns what it returned, 0 to 255; -1 if the child was killed, or
/// if an exception left `body`. Catch2's macros must not be used in it.
template <class Body>
int forked(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int result = 0;
    try {
      result = body();
    } catch (...) {
      ::abort();
    }
    ::_exit(result);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

/// Gives up the rights of root, if the process has them.
inline bool become_nobody() {
  return ::geteuid() != 0 || (::setegid(65533) == 0 && ::seteuid(65534) == 0);
}

/// From now on the system calls with these numbers fail with the errno value `err`. Returns false
/// if the kernel has no filters of system calls.
inline bool forbid(const std::vector<long>& calls, int err) {
  std::vector<sock_filter> steps{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long call : calls) {
    steps.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    steps.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(err)));
  }
  steps.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(steps.size()), steps.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

}  // namespace testing
