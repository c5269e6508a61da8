// SPDX-License-Identifier: BSD-3-Clause
// Processes that end while threads of the library serve: main() returns, exit(3) on a worker, and
// _exit(2). Each is a child whose workers exchange bytes with each other. Over TLS this is tested
// by tests/clients/c_interface.sh: this program has used OpenSSL before the library does, which
// then cannot keep OpenSSL from ending at exit(3).

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "c/aeconn.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using namespace testing::c;

namespace {

std::atomic<unsigned> exchanged{0};

/// Sends back what has come; without end.
void echo(void*, aeconn_conn* conn) {
  std::array<char, 4096> buffer;
  const ssize_t n = aeconn_read(conn, buffer.data(), buffer.size());
  if (n > 0) {
    ++exchanged;
    aeconn_write(conn, buffer.data(), static_cast<size_t>(n));
  }
}
void serve(void*, aeconn_loop*, aeconn_conn* conn) { aeconn_on_readable(conn, echo, nullptr); }
void begin(void*, aeconn_conn* conn) {
  if (aeconn_get_state(conn) != AECONN_CONNECTED) return;
  aeconn_on_readable(conn, echo, nullptr);
  aeconn_write(conn, "around and around", 17);
}
void dial(void* url, aeconn_loop* loop) {
  // Connections come and go as well: what is looked up at each, must be there until the end.
  aeconn_connect(loop, static_cast<const char*>(url), begin, nullptr);
}
void leave(void*, aeconn_loop*) { std::exit(42); }

enum class Way { kReturn, kExitOnWorker, kExitAtOnce };

/// In the child. As main() would.
int live(const testing::Transport& transport, const std::string& folder, Way way) {
  configure(transport);
  aeconn_group* const group = aeconn_group_new(3, "left", 0);
  if (group == nullptr) return 1;
  const bool path = conn::carries_path(transport.name);
  const std::string at =
      path ? transport.name + ":" + folder + "/exit"
           : transport.name + "://" + (transport.name.ends_with("vsock") ? "1:0" : "127.0.0.1:0");
  aeconn_listener* const listener =
      aeconn_group_listen(group, at.c_str(), AECONN_ROUND_ROBIN, serve, nullptr);
  if (listener == nullptr) return 2;
  static std::string url;  // read by threads until the end
  url = aeconn_listener_url(listener, 0);
  const auto late = std::chrono::steady_clock::now() + testing::patience();
  for (unsigned round = 0; exchanged < 200; ++round) {
    for (std::size_t i = 0; round < 10 && i < 3; ++i) aeconn_group_post(group, i, dial, url.data());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (std::chrono::steady_clock::now() > late) return 3;
  }
  if (way == Way::kExitAtOnce) ::_exit(42);
  if (way == Way::kExitOnWorker) {
    aeconn_group_post(group, 1, leave, nullptr);
    for (;;) ::pause();
  }
  return 42;
}

}  // namespace

TEST_CASE("C exit: a process may end while its workers serve", "[c][group][fork]") {
  if (testing::simulated()) return;
  FOR_EVERY_C_TRANSPORT(transport) {
    if (!transport.threads || transport.name.ends_with("rdma")) return;
    if (transport.name.starts_with("tls")) return;
    for (const Way way : {Way::kReturn, Way::kExitOnWorker, Way::kExitAtOnce}) {
      for (int times = 0; times < 3; ++times) {
        CAPTURE(transport.name, static_cast<int>(way), times);
        const testing::TempFolder folder;
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
          alarm(60 * testing::slower());  // ends it if it hangs
          const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
          ::dup2(nowhere, 1);  // what Catch2 reports at exit is not of this run
          ::dup2(nowhere, 2);
          std::exit(live(transport, folder.path(), way));
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        CHECK((WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)) == 42);
      }
    }
  }
}
