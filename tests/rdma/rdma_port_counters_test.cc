// SPDX-License-Identifier: BSD-3-Clause
// Port counters, read from a folder in the format of sysfs.

#include "conn/rdma/device/port_counters.h"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::rdma::PortCounters;
using Added = std::vector<std::pair<std::string, std::uint64_t>>;

TEST_CASE("port counters: differences since the first look", "[rdma][metrics]") {
  const testing::TempFolder folder;
  const std::string device = folder.path();
  for (const char* kind : {"1/counters", "1/hw_counters", "2/counters"})
    std::filesystem::create_directories(device + "/ports/" + kind);
  const auto write = [&](const char* name, const char* text) {
    std::ofstream(device + "/ports/" + name) << text << '\n';
  };
  write("1/counters/port_rcv_packets", "100");
  write("1/counters/odd", "N/A (no PMA)");
  write("1/hw_counters/sent_pkts", "18446744073709551610");
  write("1/hw_counters/lifespan", "10");
  write("2/counters/port_rcv_packets", "7");
  PortCounters counters(device);
  REQUIRE(counters.read() == Added{{"port1_hw_sent_pkts", 0},
                                   {"port1_port_rcv_packets", 0},
                                   {"port2_port_rcv_packets", 0}});
  write("1/counters/port_rcv_packets", "130");
  write("1/hw_counters/sent_pkts", "18446744073709551615");
  write("2/counters/port_rcv_packets", "3");  // the counter was reset
  REQUIRE(counters.read() == Added{{"port1_hw_sent_pkts", 5},
                                   {"port1_port_rcv_packets", 30},
                                   {"port2_port_rcv_packets", 3}});
}

TEST_CASE("port counters: none falls, whatever the kernel's do", "[rdma][metrics]") {
  const testing::TempFolder folder;
  const std::string place = folder.path() + "/ports/1/counters";
  std::filesystem::create_directories(place);
  const auto write = [&](std::uint64_t value) { std::ofstream(place + "/packets") << value; };
  write(100);
  PortCounters counters(folder.path());
  std::uint64_t last = 0;
  for (const std::uint64_t value : {150, 20, 20, 25, 0, 7}) {
    write(value);
    const auto now = counters.read();
    REQUIRE(now.size() == 1);
    CHECK(now[0].second >= last);
    last = now[0].second;
  }
  CHECK(last == 50 + 20 + 0 + 5 + 0 + 7);
  std::filesystem::remove_all(folder.path() + "/ports");  // the device was removed
  CHECK(counters.read() == Added{{"port1_packets", last}});
  std::filesystem::create_directories(place);
  write(3);
  CHECK(counters.read() == Added{{"port1_packets", last + 3}});
}

TEST_CASE("port counters: a device without them has none", "[rdma][metrics]") {
  REQUIRE(PortCounters("/nonexistent").read().empty());
  REQUIRE(conn::rdma::port_counters("never begun").empty());
}
