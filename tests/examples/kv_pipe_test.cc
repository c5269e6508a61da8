// SPDX-License-Identifier: BSD-3-Clause
// kv-cli --pipe with a server that does not answer; other cases are in tests/clients/programs.py.
#include <fcntl.h>
#include <unistd.h>

#include "examples/kv_server/cli_client.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace {

/// Replaces standard input and output by /dev/null until destroyed.
class NoStreams {
 public:
  NoStreams() {
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) ::dup2(null, fd);
    ::close(null);
  }
  NoStreams(const NoStreams&) = delete;
  NoStreams& operator=(const NoStreams&) = delete;
  ~NoStreams() {
    ::dup2(input_, STDIN_FILENO);
    ::dup2(output_, STDOUT_FILENO);
    ::close(input_);
    ::close(output_);
  }

 private:
  const int input_ = ::dup(STDIN_FILENO), output_ = ::dup(STDOUT_FILENO);
};

}  // namespace

TEST_CASE("kv-cli: --pipe gives a server up that is silent", "[kv]") {
  const testing::TempFolder folder;
  const conn::Registry registry = testing::test_registry();
  testing::AnyLoop loop;
  const std::string url = "unix://" + folder.path() + "/silent";
  std::vector<conn::ConnectionPtr> accepted;
  const auto listener = registry.listen(
      loop, url, [&](conn::ConnectionPtr arrived) { accepted.push_back(std::move(arrived)); });
  kv::CliClient client(loop, registry, url);
  std::string why;
  {
    const NoStreams streams;
    try {
      (void)kv::run_pipe(client, std::chrono::milliseconds(20));
    } catch (const conn::Error& error) {
      why = error.what();
    }
  }
  CHECK(why.starts_with("the server has been silent for 0.02 s"));
}
