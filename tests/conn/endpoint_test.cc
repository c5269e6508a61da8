// SPDX-License-Identifier: BSD-3-Clause
// Endpoint: URLs for listening and connecting.

#include "conn/endpoint.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "conn/error.h"
#include "tests/support/catch.h"

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using conn::Endpoint;
using testing::Contains;

TEST_CASE("endpoint: host, port and options are taken apart", "[conn][endpoint]") {
  const Endpoint endpoint = Endpoint::parse("rdma://10.0.0.1:6379?window=256k&keepalive=3s");
  REQUIRE(endpoint.scheme == "rdma");
  REQUIRE(endpoint.hosts.size() == 1);
  REQUIRE(endpoint.hosts[0].name == "10.0.0.1");
  REQUIRE_FALSE(endpoint.hosts[0].optional);
  REQUIRE(endpoint.port == 6379);
  REQUIRE_FALSE(endpoint.no_port);
  REQUIRE(endpoint.path.empty());
  REQUIRE(endpoint.options.to_string() == "keepalive=3s&window=256k");
}

TEST_CASE("endpoint: several hosts share one port, and '-' makes one optional",
          "[conn][endpoint]") {
  const Endpoint endpoint = Endpoint::parse("tcp://*,-[::],-[fe80::1%eth0],my-host_1.example:80");
  REQUIRE(endpoint.hosts.size() == 4);
  REQUIRE(endpoint.hosts[0].name == "*");
  REQUIRE_FALSE(endpoint.hosts[0].optional);
  REQUIRE(endpoint.hosts[1].name == "::");
  REQUIRE(endpoint.hosts[1].optional);
  REQUIRE(endpoint.hosts[2].name == "fe80::1%eth0");
  REQUIRE(endpoint.hosts[3].name == "my-host_1.example");
  REQUIRE(endpoint.port == 80);
}

TEST_CASE("endpoint: a unix scheme carries a path", "[conn][endpoint]") {
  REQUIRE(Endpoint::parse("unix:///run/kv.sock").path == "/run/kv.sock");
  REQUIRE(Endpoint::parse("unix:/run/kv.sock").path == "/run/kv.sock");
  REQUIRE(Endpoint::parse("unix:kv.sock").path == "kv.sock");
  const Endpoint layered = Endpoint::parse("tls+unix:///a b,c:1?mode=770");
  REQUIRE(layered.scheme == "tls+unix");
  REQUIRE(layered.path == "/a b,c:1");
  REQUIRE(layered.hosts.empty());
  REQUIRE(layered.options.text("mode", "") == "770");
}

TEST_CASE("endpoint: the URL of any scheme may carry a path after '//'", "[conn][endpoint]") {
  const Endpoint own = Endpoint::parse("pipe:///a%20b?x=1");
  REQUIRE(own.path == "/a b");
  REQUIRE(own.hosts.empty());
  REQUIRE(own.options.text("x", "") == "1");
  REQUIRE(own.to_string() == "pipe:///a%20b?x=1");
  REQUIRE(Endpoint::parse("pipe://a").hosts.size() == 1);
  for (const std::string url : {"pipe:///", "tcp:///"})  // tcp takes no path
    REQUIRE_THROWS_WITH(Endpoint::parse(url), url + ": a host or a path must follow '//'");
  REQUIRE_THROWS_AS(Endpoint::parse("pipe|other:///a"), conn::Error);
}

TEST_CASE("endpoint: several schemes may share a place", "[conn][endpoint]") {
  const Endpoint endpoint = Endpoint::parse("RDMA|tcp://10.0.0.1:6379?window=64k");
  REQUIRE(endpoint.is_list());
  REQUIRE(endpoint.schemes() == std::vector<std::string>{"rdma", "tcp"});
  REQUIRE(endpoint.to_string() == "rdma|tcp://10.0.0.1:6379?window=64k");
  REQUIRE(endpoint.port == 6379);
  REQUIRE_FALSE(Endpoint::parse("rdma://10.0.0.1:6379").is_list());
  REQUIRE(Endpoint::parse("rdma://h:1").schemes() == std::vector<std::string>{"rdma"});
  REQUIRE(Endpoint::parse("tls+rdma|tls://h:1").schemes().size() == 2);
}

TEST_CASE("endpoint: a list of schemes never leads to less security", "[conn][endpoint]") {
  for (const char* url : {"tls+rdma|tcp://h:1", "tls|tcp://h:1", "rdma|tls|tcp://h:1",
                          "tls+rdma|tls|rdma://h:1", "TLS|TCP://h:1"}) {
    CAPTURE(url);
    REQUIRE_THROWS_WITH(Endpoint::parse(url),
                        StartsWith(url) && Contains("which is not encrypted"));
  }
  REQUIRE_THROWS_WITH(Endpoint::parse("tls+rdma|tcp://h:1"), EndsWith("write tls+rdma|tls"));
  REQUIRE_THROWS_WITH(Endpoint::parse("tls|rdma://h:1"), EndsWith("write tls|tls+rdma"));
  REQUIRE_NOTHROW(Endpoint::parse("rdma|tls://h:1"));  // more options are allowed
}

TEST_CASE("endpoint: a list of schemes that makes no sense is refused", "[conn][endpoint]") {
  for (const char* url : {"rdma|://h:1", "|tcp://h:1", "rdma||tcp://h:1", "rdma|1tcp://h:1"}) {
    CAPTURE(url);
    REQUIRE_THROWS_AS(Endpoint::parse(url), conn::Error);
  }
  REQUIRE_THROWS_WITH(Endpoint::parse("tcp|tcp://h:1"), Contains("tcp stands twice"));
  REQUIRE_THROWS_WITH(Endpoint::parse("tcp|unix:///x"), Contains("cannot share a URL"));
}

TEST_CASE("endpoint: a missing port is remembered as missing, unlike port 0", "[conn][endpoint]") {
  REQUIRE(Endpoint::parse("tcp://127.0.0.1").no_port);
  REQUIRE_FALSE(Endpoint::parse("tcp://127.0.0.1:0").no_port);
  REQUIRE(Endpoint::parse("tcp://127.0.0.1").port == 0);
}

TEST_CASE("endpoint: what is printed parses to the same", "[conn][endpoint]") {
  for (const char* url :
       {"tcp://127.0.0.1:6379", "tcp://*,-[::]:6379", "tcp://[::1]:0", "unix:///run/kv.sock",
        "unix:kv.sock", "memory://name", "rdma://10.0.0.1:6379?keepalive=3s&window=256k",
        "tcp://[fe80::1%eth0],-b:65535", "tcp://[fe80::1%br+1%2F@x]:1", "tls+unix:///x?mode=770"}) {
    REQUIRE(Endpoint::parse(url).to_string() == url);
  }
  REQUIRE(Endpoint::parse("TCP://LocalHost:1").to_string() == "tcp://LocalHost:1");
  REQUIRE(Endpoint::parse("unix:/a").to_string() == "unix:///a");
}

TEST_CASE("endpoint: bytes may be written as %XX", "[conn][endpoint]") {
  CHECK(Endpoint::parse("unix:///a%3fb%25%C3%bc").path == "/a?b%\xC3\xBC");
  CHECK(Endpoint::parse("unix:///a%00b").path == std::string("/a\0b", 4));
  const Endpoint options = Endpoint::parse("tcp://h:1?a%26b=c%26d%3D%25&plus=1+1");
  CHECK(options.options.text("a&b", "") == "c&d=%");
  CHECK(options.options.text("plus", "") == "1+1");
  for (const char* url :
       {"tcp://a,-b,[::1]:1", "tcp://a%2Cb%2c[::1]:1", "tcp://%61%2C-b,[::1]%3a1"}) {
    CAPTURE(url);
    const Endpoint hosts = Endpoint::parse(url);
    REQUIRE(hosts.hosts.size() == 3);
    CHECK(hosts.hosts[0].name == "a");
    CHECK(hosts.hosts[1].name == "b");
    CHECK(hosts.hosts[2].name == "::1");
    CHECK(hosts.port == 1);
  }
  // Option parsers of hosts cut at commas: a URL can do without any.
  const Endpoint whole = Endpoint::parse(
      "rdma|tcp://10.0.0.1%2C-[::1]:1?cert=a.pem%2Cb.pem&key%2C=c&proxy-protocol=10.0.0.0/8%2c::1");
  CHECK(whole.hosts.size() == 2);
  CHECK(whole.hosts[1].optional);
  CHECK(whole.options.text("cert", "") == "a.pem,b.pem");
  CHECK(whole.options.text("key,", "") == "c");
  CHECK(whole.options.text("proxy-protocol", "") == "10.0.0.0/8,::1");
  CHECK(Endpoint::parse("shm|tcp://h:1?shm-path=/run/a%2Cb").options.text("shm-path", "") ==
        "/run/a,b");
  CHECK(Endpoint::parse("unix:/run/a%2cb").path == "/run/a,b");
  CHECK(conn::Options::parse("cert=a%2Cb&ciphers=x%2Cy").text("ciphers", "") == "x,y");
  for (const char* url : {"unix:///a%", "unix:///a%4", "unix:///a%4g", "tcp://h:1?a=%",
                          "tcp://h:1?%zz=1", "tcp://h%2:1"}) {
    CAPTURE(url);
    CHECK_THROWS_WITH(Endpoint::parse(url), Contains("a percent sign itself is %25"));
  }
  CHECK_THROWS_WITH(Endpoint::parse("tcp://a%40b:1"), EndsWith("'@' cannot stand in a host name"));
  // Text in brackets is not decoded, so a bracket is written as it is.
  for (const char* url : {"tcp://%5B::1]:1", "tcp://%5b::1%25%3F]:1", "tcp://a,%5B::1%5D:1"}) {
    CAPTURE(url);
    CHECK_THROWS_WITH(Endpoint::parse(url), EndsWith("'[' cannot stand in a host name"));
  }
  for (const char* url : {"tcp://[::1%a/b]:1", "tcp://[::1%\x01]:1", "tcp://[::1%a b]:1"}) {
    CAPTURE(url);
    CHECK_THROWS_WITH(Endpoint::parse(url), EndsWith("is not an IPv6 address"));
  }
}

TEST_CASE("endpoint: whatever path and options have, what is printed parses to the same",
          "[conn][endpoint][random]") {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  std::string all;
  for (const std::string& each : texts) all += each;
  texts.push_back(all);
  std::mt19937 random(GENERATE(1U, 2U, 3U));
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (std::size_t left = 1 + random() % 12; left > 0; --left)
      text += random() % 2 == 0 ? static_cast<char>(random()) : "&=?%@#/,+|:"[random() % 11];
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    CAPTURE(text);
    Endpoint endpoint = Endpoint::parse("tls+unix:x");
    endpoint.path = text == "/" ? "//" : text;  // the root directory is no socket
    endpoint.options.set(text, text);
    endpoint.options.set("empty", "");
    const std::string url = endpoint.to_string();
    CAPTURE(url);
    REQUIRE(std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c < 127; }));
    const Endpoint again = Endpoint::parse(url);
    REQUIRE(again.path == endpoint.path);
    REQUIRE(again.options.values() == endpoint.options.values());
    REQUIRE(again.to_string() == url);
    REQUIRE(conn::Options::parse(endpoint.options.to_string()).values() ==
            endpoint.options.values());
  }
}

TEST_CASE("endpoint: ports run from 0 to 65535", "[conn][endpoint]") {
  REQUIRE(Endpoint::parse("tcp://h:0").port == 0);
  REQUIRE(Endpoint::parse("tcp://h:65535").port == 65535);
  REQUIRE(Endpoint::parse("tcp://h:00080").port == 80);
  for (const char* port :
       {"65536", "-1", "+1", "", "http", "1 ", "000080", "99999999999", "0x50"}) {
    CAPTURE(port);
    REQUIRE_THROWS_WITH(Endpoint::parse("tcp://h:" + std::string(port)),
                        Contains("is not a port (0 to 65535)"));
  }
}

TEST_CASE("endpoint: every complaint begins with the URL and says what is wrong",
          "[conn][endpoint]") {
  const auto refused = [](const std::string& url, const std::string& why) {
    CAPTURE(url);
    REQUIRE_THROWS_WITH(Endpoint::parse(url), StartsWith(url + ": ") && Contains(why));
  };
  refused("", "not a URL");
  refused("127.0.0.1:6379", "not a URL");
  refused("localhost", "not a URL");
  refused("://h:1", "not a URL");
  refused("t cp://h:1", "not a URL");
  refused("tcp:127.0.0.1:1", "'//' must follow");
  refused("tcp://", "a host is missing");
  refused("tcp://:6379", "a host is missing");
  refused("tcp://a,:1", "a host is missing");
  refused("tcp://a,,b:1", "a host is missing");
  refused("tcp://-:1", "a host is missing");
  refused("tcp://a,", "a host is missing");
  refused("tcp://--a:1", "cannot start with '-'");
  refused("tcp://a:1/", "is not a port");
  refused("tcp://a/b", "ends with its port");
  refused("tcp://user@a:1", "'@' cannot stand in a host name");
  refused("tcp://@a:1", "'@' cannot stand in a host name");
  refused("tcp://a b:1", "' ' cannot stand in a host name");
  refused("tcp://a*:1", "'*' stands alone");
  refused("tcp://::1:6379", "a host is missing");
  refused("tcp://fe80::1:6379", "stands in brackets");
  refused("tcp://a:1,b:2", "one port serves all hosts");
  refused("tcp://[::1:80", "']' is missing");
  refused("tcp://[]:80", "is not an IPv6 address");
  refused("tcp://[127.0.0.1]:80", "is not an IPv6 address");
  refused("tcp://[::1%]:80", "is not an IPv6 address");
  refused("tcp://[::1]80", "follows ']'");
  refused("tcp://a:1?x=1&x=2", "option x is given twice");
  refused("tcp://a:1?=2", "an option has no name");
  refused("unix:", "the path of the socket is missing");
  refused("unix:///", "the path of the socket is missing");
  refused("unix://run/kv.sock", "starts with '/'");
}

TEST_CASE("endpoint: control characters do not garble the complaint", "[conn][endpoint]") {
  REQUIRE_THROWS_WITH(Endpoint::parse(std::string("unix:///a\0b", 11)),
                      "unix:///a?b: a path cannot hold a NUL byte");
  REQUIRE_THROWS_WITH(Endpoint::parse(std::string("tcp://a\0b:1", 11)),
                      StartsWith("tcp://a?b:1: "));
}

TEST_CASE("endpoint: IPv6 hosts get brackets beside a port", "[conn][endpoint]") {
  REQUIRE(conn::host_port("127.0.0.1", 80) == "127.0.0.1:80");
  REQUIRE(conn::host_port("::1", 80) == "[::1]:80");
}

TEST_CASE("endpoint: addresses fall into host and port", "[conn][endpoint]") {
  const auto split = [](std::string_view text) {
    const conn::Address address = conn::split_address(text);
    return address.host + " " + std::to_string(address.port);
  };
  CHECK(split("10.0.0.1:6379") == "10.0.0.1 6379");
  CHECK(split("[::1]:80") == "::1 80");
  CHECK(split("[fe80::1%eth0]:65535") == "fe80::1%eth0 65535");
  CHECK(split("/run/a:1") == "/run/a:1 0");
  CHECK(split("@a:1") == "@a:1 0");
  CHECK(split("::1") == "::1 0");
  CHECK(split("host") == "host 0");
  CHECK(split("host:") == "host: 0");
  CHECK(split("host:65536") == "host:65536 0");
  CHECK(split("") == " 0");
}
