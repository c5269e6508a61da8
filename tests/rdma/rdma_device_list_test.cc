// SPDX-License-Identifier: BSD-3-Clause
// Detection of RDMA devices, with a folder in the format of sysfs.
#if AECONN_RDMA

#include "conn/rdma/device/device_list.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/aeconn-here-XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void port(const std::string& device, const std::string& state,
            const std::vector<std::string>& gids) const {
    const std::string port = path + "/" + device + "/ports/1";
    std::filesystem::create_directories(port + "/gids");
    std::ofstream(port + "/state") << state << '\n';
    for (std::size_t i = 0; i < gids.size(); ++i)
      std::ofstream(port + "/gids/" + std::to_string(i)) << gids[i] << '\n';
  }
  std::string path;
};

std::vector<SocketAddress> addresses(std::initializer_list<const char*> hosts) {
  std::vector<SocketAddress> all;
  for (const char* host : hosts) REQUIRE(numeric_address(host, 0, all.emplace_back()));
  return all;
}

constexpr const char* kNone = "0000:0000:0000:0000:0000:0000:0000:0000";

TEST_CASE("rdma here: devices with the addresses that this machine has", "[rdma]") {
  const Folder folder;
  folder.port("rxe0", "4: ACTIVE",
              {"fe80:0000:0000:0000:0001:02ff:fe03:0405", "0000:0000:0000:0000:0000:ffff:0a4d:0001",
               "0000:0000:0000:0000:0000:ffff:0a4d:0001", "fd77:00ae:0000:0000:0000:0000:0000:0001",
               kNone});
  folder.port("rxe1", "1: DOWN", {"0000:0000:0000:0000:0000:ffff:0a09:0001", kNone});
  const auto present = addresses({"127.0.0.1", "10.77.0.1", "fd77:ae::1"});
  CHECK(devices_text(devices_here(present, folder.path)) ==
        "here are rxe0 (10.77.0.1, fd77:ae::1), rxe1 (no address in this network namespace, link "
        "down)");
}

TEST_CASE("rdma here: none, one, and more than a sentence holds", "[rdma]") {
  const Folder folder;
  CHECK(devices_text(devices_here({}, folder.path)) == "there is no RDMA device here");
  CHECK(devices_text(devices_here({}, folder.path + "/nowhere")) == "there is no RDMA device here");
  folder.port("mlx5_0", "4: ACTIVE",
              {"0000:0000:0000:0000:0000:ffff:0a00:0001", "0000:0000:0000:0000:0000:ffff:0a00:0002",
               "0000:0000:0000:0000:0000:ffff:0a00:0003", "0000:0000:0000:0000:0000:ffff:0a00:0004",
               "0000:0000:0000:0000:0000:ffff:0a00:0005"});
  const auto present = addresses({"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"});
  CHECK(devices_text(devices_here(present, folder.path)) ==
        "here is mlx5_0 (10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, ...)");
  for (int i = 1; i < 9; ++i) folder.port("mlx5_" + std::to_string(i), "4: ACTIVE", {});
  const std::string many = devices_text(devices_here(present, folder.path));
  CHECK(many.ends_with("mlx5_7 (no address in this network namespace), ..."));
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
