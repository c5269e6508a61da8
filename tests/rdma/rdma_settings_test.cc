// SPDX-License-Identifier: BSD-3-Clause
// The options of rdma://: the allowed values of each, up to the limits.
#if AECONN_RDMA

#include "conn/rdma/settings.h"

#include <string>

#include "conn/error.h"
#include "conn/transports/transports.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using namespace std::chrono_literals;

struct Range {
  const char *key, *below, *least, *most, *above;
};

Settings with(const std::string& key, const std::string& value) {
  return Settings::from(Options::parse(key + "=" + value));
}

TEST_CASE("rdma settings: each option takes what is in its range, and nothing beside it",
          "[rdma][options]") {
  const Range range = GENERATE(
      Range{"window", "15", "16", "1073741824", "1073741825"},
      Range{"max-window", "65535", "65536", "1073741824", "1073741825"},
      Range{"max-windows", "1", "2", "8", "9"},
      Range{"max-peer-window", "4095", "4096", "1073741824", "1073741825"},
      Range{"send-buffer", "4095", "4096", "1073741824", "1073741825"},
      Range{"max-send-buffer", "262143", "262144", "1073741824", "1073741825"},
      Range{"send-queue", "7", "8", "16384", "16385"},
      Range{"receive-queue", "15", "16", "16384", "16385"},
      Range{"shared-receive-queue", "63", "64", "16384", "16385"},
      Range{"inline", "-1", "0", "1024", "1025"},
      Range{"read-budget", "4095", "4096", "1073741824", "1073741825"},
      Range{"accept-batch", "0", "1", "10000", "10001"},
      Range{"backlog", "0", "1", "65535", "65536"}, Range{"prepared", "-1", "0", "10000", "10001"},
      Range{"memory-limit", "-1", "0", "1125899906842624", "1125899906842625"},
      Range{"keepalive", "-1ms", "0ms", "24h", "86401s"},
      Range{"connect-timeout", "0ms", "1ms", "24h", "86401s"},
      Range{"accept-timeout", "0ms", "1ms", "1h", "3601s"},
      Range{"linger", "-1ms", "0ms", "1h", "3601s"},
      Range{"end-linger", "-1ms", "0ms", "1h", "3601s"},
      Range{"spin", "-1ms", "0ms", "100ms", "101ms"},
      Range{"comp-vector", "-1", "0", "65535", "65536"}, Range{"ack-timeout", "0", "1", "31", "32"},
      Range{"retry-count", "-1", "0", "7", "8"}, Range{"traffic-class", "-1", "0", "255", "256"},
      Range{"dscp", "-1", "0", "63", "64"}, Range{"service-level", "-1", "0", "15", "16"},
      Range{"path-mtu", "255", "256", "4096", "8192"}, Range{"gid-index", "-1", "0", "255", "256"},
      Range{"pkey-index", "-1", "0", "65535", "65536"});
  CAPTURE(range.key);
  CHECK_THROWS_AS(with(range.key, range.below), Error);
  CHECK_NOTHROW(with(range.key, range.least));
  CHECK_NOTHROW(with(range.key, range.most));
  CHECK_THROWS_AS(with(range.key, range.above), Error);
}

TEST_CASE("rdma settings: what is not given is what a Settings has by itself", "[rdma][options]") {
  const Settings parsed = Settings::from({}), plain;
  CHECK(parsed.isolation == plain.isolation);
  CHECK(parsed.completion_vector == plain.completion_vector);
  CHECK(parsed.memory_limit == plain.memory_limit);
  CHECK(parsed.spin.mode == plain.spin.mode);
  CHECK(parsed.max_window == plain.max_window);
  CHECK(parsed.max_send_buffer == plain.max_send_buffer);
  CHECK(parsed.fabric.words() == plain.fabric.words());
}

TEST_CASE("rdma settings: what the network is asked for", "[rdma][options]") {
  CHECK_FALSE(Settings{}.fabric.asks());
  CHECK(Settings{}.fabric.ece);
  CHECK_FALSE(with("ece", "no").fabric.ece);
  CHECK(with("dscp", "46").fabric.traffic_class == 184);
  CHECK(with("traffic-class", "185").fabric.traffic_class == 185);
  CHECK(with("service-level", "3").fabric.service_level == 3);
  CHECK(with("gid-index", "0").fabric.gid_index == 0);
  CHECK(with("pkey-index", "300").fabric.pkey_index == 300);
  CHECK(with("path-mtu", "1k").fabric.path_mtu == IBV_MTU_1024);
  CHECK(with("path-mtu", "2048").fabric.path_mtu == IBV_MTU_2048);
  CHECK_THROWS_WITH(with("path-mtu", "1500"),
                    testing::Contains("must be one of 256, 512, 1024, 2048, 4096"));
  CHECK_THROWS_WITH(with("dscp", "8&traffic-class=32"),
                    "dscp is the old name of traffic-class: give one of them");
  CHECK_THROWS_WITH(with("dscp", "64"),
                    testing::Contains("dscp=64: must be a number from 0 to 63"));
  const Fabric all =
      Settings::from(Options::parse("dscp=1&service-level=2&gid-index=3&pkey-index=4&path-mtu=4k"))
          .fabric;
  CHECK(all.words() ==
        "traffic-class=4, service-level=2, gid-index=3, pkey-index=4, path-mtu=4096");
}

TEST_CASE("rdma settings: a list of schemes knows old names, too", "[rdma][options]") {
  const Registry registry = all_transports();
  const ConnectionType& list = registry.require("rdma|tcp");
  CHECK(list.find_option("dscp") == list.find_option("traffic-class"));
  CHECK_NOTHROW(list.check(Endpoint::parse("rdma|tcp://127.0.0.1:1?dscp=46&linger=1s")));
  CHECK_THROWS_WITH(
      list.check(Endpoint::parse("rdma|tcp://127.0.0.1:1?sleep-cost=5us")),
      "rdma|tcp://127.0.0.1:1?sleep-cost=5us: rdma has no option sleep-cost any more: "
      "leave it out, the loop measures it");
}

TEST_CASE("rdma settings: each option is its own", "[rdma][options]") {
  CHECK(with("window", "2m").window == 2u << 20);
  CHECK(with("window", "2m").max_window == 2u << 20);
  CHECK(with("window", "16").max_window == 1u << 20);
  CHECK(with("max-window", "2m").max_window == 2u << 20);
  CHECK(with("max-windows", "3").max_windows == 3);
  CHECK(with("max-peer-window", "8192").max_peer_window == 8192);
  CHECK(with("send-buffer", "8192").send_buffer == 8192);
  CHECK(with("send-buffer", "8192").max_send_buffer == 8192);  // an explicit size is not exceeded
  CHECK(with("send-buffer", "8m").max_send_buffer == 8u << 20);
  CHECK(with("max-send-buffer", "8m").max_send_buffer == 8u << 20);
  CHECK(with("max-send-buffer", "8m").send_buffer == 256u << 10);
  CHECK(with("send-queue", "9").send_queue == 9);
  CHECK(with("receive-queue", "17").receive_queue == 17);
  CHECK(with("shared-receive-queue", "65").shared_receive_queue == 65);
  CHECK(with("inline", "3").inline_data == 3);
  CHECK(with("read-budget", "8192").read_budget == 8192);
  CHECK(with("accept-batch", "3").accept_batch == 3);
  CHECK(with("backlog", "3").backlog == 3);
  CHECK(with("prepared", "3").prepared == 3);
  CHECK(with("memory-limit", "3").memory_limit == 3);
  CHECK(with("keepalive", "7ms").keepalive == 7ms);
  CHECK(with("connect-timeout", "7ms").connect_timeout == 7ms);
  CHECK(with("accept-timeout", "7ms").accept_timeout == 7ms);
  CHECK(with("linger", "7ms").linger == 7ms);
  CHECK(with("end-linger", "7ms").end_linger == 7ms);
  CHECK(with("spin", "7ms").spin.time == 7ms);
  CHECK(with("spin", "7ms").spin.mode == ae::Spin::Mode::kFixed);
  CHECK(with("spin-max", "7us").spin.most == 7us);
  CHECK(with("isolation", "none").isolation == Isolation::kNone);
  CHECK(with("isolation", "auto").isolation == Isolation::kAuto);
  CHECK(with("isolation", "window").isolation == Isolation::kWindow);
  CHECK(with("isolation", "connection").isolation == Isolation::kConnection);
  CHECK_FALSE(Settings::from({}).in_place);  // the safe default
  CHECK(with("in-place", "yes").in_place);
  CHECK_FALSE(with("in-place", "no").in_place);
  CHECK_THROWS_AS(with("in-place", "full"), Error);
  CHECK(with("comp-vector", "3").completion_vector == 3);
  CHECK(with("comp-vector", "auto").completion_vector == -1);
  CHECK(with("device", "x").device == "x");
  CHECK(with("source", "x").source == "x");
  CHECK(with("ack-timeout", "9").timeouts.ack_timeout == 9);
  CHECK(with("retry-count", "3").timeouts.retry_count == 3);
  // Half of the machine's memory, which is more than 1 MiB.
  CHECK(Settings::from({}).memory_limit > 1u << 20);
}

}  // namespace
}}}  // namespace conn::rdma

#endif
