// SPDX-License-Identifier: BSD-3-Clause
// URLs and options: parsed by a program at start, and by a proxy for each connection.

#include <string_view>

#include "bench/micro/cases.h"
#include "conn/endpoint.h"
#include "conn/options.h"

namespace micro {
namespace {

auto parse(std::string_view url) {
  return [url] { return [url] { keep(conn::Endpoint::parse(url)); }; };
}

}  // namespace

void add_text_cases(Cases& cases) {
  cases.add("endpoint/tcp://127.0.0.1:6379", parse("tcp://127.0.0.1:6379"));
  cases.add("endpoint/two hosts, one of IPv6", parse("tcp://10.0.0.1,-[fe80::1]:6379"));
  cases.add("endpoint/rdma with two options",
            parse("rdma://10.0.0.1:6379?window=256k&keepalive=3s"));
  cases.add("endpoint/to_string", [] {
    return [endpoint = conn::Endpoint::parse("rdma://10.0.0.1:6379?window=256k")] {
      keep(endpoint.to_string());
    };
  });
  cases.add("options/bytes and duration", [] {
    return [options = conn::Options::parse("window=256k&keepalive=250ms")] {
      using namespace std::chrono_literals;
      keep(options.bytes("window", 0, 1, 1 << 30));
      keep(options.duration("keepalive", 0s, 0s, 1h));
    };
  });
}

}  // namespace micro
