// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: a key log that is a pipe.
#if AECONN_TLS

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "conn/kit/descriptor.h"
#include "tests/support/catch.h"

TEST_CASE("tls: a key log whose reader is gone does not end the process", "[tls][options]") {
  // The reader goes after the key log was opened and before it is written.
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  ::close(ends[0]);
  char line[] = "CLIENT_RANDOM 00 00\n";
  const iovec part{line, sizeof line - 1};
  const bool pending = GENERATE(false, true);  // a SIGPIPE of the program itself
  CAPTURE(pending);
  const pid_t child = ::fork();
  if (child == 0) {
    sigset_t pipe, found;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    ::signal(SIGPIPE, SIG_DFL);
    ::pthread_sigmask(pending ? SIG_BLOCK : SIG_UNBLOCK, &pipe, nullptr);
    if (pending) (void)::raise(SIGPIPE);
    const bool refused = conn::write_without_signal(ends[1], {&part, 1}) == -1 && errno == EPIPE;
    sigpending(&found);
    ::_exit(refused && (sigismember(&found, SIGPIPE) != 0) == pending ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ::close(ends[1]);
  CHECK_FALSE(WIFSIGNALED(status));
  CHECK(status == 0);
}

#endif
