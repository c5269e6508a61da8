// SPDX-License-Identifier: BSD-3-Clause
// ae/spin/cgroup.h: the cgroup of the process.

#include "ae/spin/cgroup.h"

#include <array>
#include <fstream>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/testing.h"

TEST_CASE("spin: the process's cgroup is found however many lines come before it", "[ae][spin]") {
  const testing::TempFolder folder;
  const std::string file = folder.path() + "/cgroup";
  const auto found = [&](const std::string& text) -> std::string {
    std::ofstream(file) << text;
    std::array<char, 4096> group{};
    if (!ae::find_cgroup(file.c_str(), group)) return "none";
    return group.data();
  };
  CHECK(found("0::/") == "/");
  CHECK(found("0::/user.slice/one\n") == "/user.slice/one");
  std::string hybrid;
  for (int i = 14; i > 0; --i)
    hybrid +=
        std::to_string(i) + ":name" + std::to_string(i) + ":/" + std::string(3000, 'g') + "\n";
  CHECK(found(hybrid + "0::/own\n") == "/own");
  CHECK(found("0::/own\n" + hybrid) == "/own");
  const std::string deep = "/" + std::string(4000, 'd');
  CHECK(found(hybrid + "0::" + deep + "\n") == deep);
  CHECK(found("0::/" + std::string(5000, 'd') + "\n") == "none");  // does not fit
  CHECK(found("10::/other\n1:cpu:/x0::/y\n") == "none");
  CHECK(found(hybrid) == "none");
  CHECK(found("") == "none");
  std::array<char, 8> group{};
  CHECK_FALSE(ae::find_cgroup((folder.path() + "/nothing").c_str(), group));
}
