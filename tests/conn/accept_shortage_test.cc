// SPDX-License-Identifier: BSD-3-Clause
// A listener whose process has no descriptors left says so, once.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using conn::ConnectionPtr;
using testing::Contains;
using testing::RawSocket;

namespace {

std::uint64_t accept_errors(const conn::Registry& registry, ae::EventLoop& loop,
                            std::string_view scheme) {
  for (const auto& [key, value] : registry.require(scheme).statistics(loop))
    if (key == "accept_errors") return value;
  return 0;
}

}  // namespace

TEST_CASE("listener: out of descriptors, the program is told once what to do", "[conn][accept]") {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/s";
  const std::string url = GENERATE(as<std::string>{}, "tcp://127.0.0.1:0", "unix:", "shm:");
  const std::string options = GENERATE(as<std::string>{}, "", "?accept-batch=1");
  CAPTURE(url, options);
  testing::AnyLoop loop;
  const conn::Registry registry = testing::test_registry();
  std::vector<ConnectionPtr> accepted;
  std::vector<conn::Failure> told;
  const auto listener = registry.listen(loop, (url.ends_with(':') ? url + path : url) + options,
                                        [&](ConnectionPtr c) { accepted.push_back(std::move(c)); });
  listener->on_refused([&](const conn::Failure& why) { told.push_back(why); });
  conn::Endpoint at = listener->endpoints().front();
  const std::string scheme = at.scheme;
  if (at.scheme == "shm") at.scheme = "unix";
  for (std::size_t episode = 1; episode <= 2; ++episode) {
    told.clear();
    {
      std::vector<RawSocket> clients;
      for (int i = 0; i < 3; ++i) clients.push_back(RawSocket::connect(at));
      {
        const testing::NoNewDescriptors limit(episode == 1 ? 3 : 0);
        const std::uint64_t before = accept_errors(registry, loop, scheme);
        RUN_UNTIL(loop, accept_errors(registry, loop, scheme) >= before + 3);
      }
      REQUIRE(told.size() == 1);
      CHECK(told[0].code == std::errc::too_many_files_open);
      CHECK_THAT(told[0].text, Contains("this process has no descriptors left"));
      CHECK_THAT(told[0].text, Contains("ulimit -n"));
      if (url != "shm:") RUN_UNTIL(loop, accepted.size() == 3 * episode);
    }
    // Clients of shm end before they have said what they want, and each is told, too.
    if (url == "shm:") RUN_UNTIL(loop, told.size() == 4);
  }
}
