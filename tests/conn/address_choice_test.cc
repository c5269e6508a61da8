// SPDX-License-Identifier: BSD-3-Clause
// The option spread: distances of addresses, the choice of the next one, and the effect of failed
// connects.

#include "conn/kit/address_choice.h"

#include <cerrno>
#include <map>
#include <string>
#include <thread>

#include "conn/transports/transports.h"
#include "tests/support/catch.h"

using conn::AddressBook;
using conn::AddressOrder;
using conn::Distance;
using conn::OwnAddress;
using conn::Quota;
using conn::SocketAddress;

namespace {

SocketAddress at(const std::string& host, std::uint16_t port = 7000) {
  SocketAddress address;
  REQUIRE(conn::numeric_address(host, port, address));
  return address;
}
std::vector<SocketAddress> some(std::initializer_list<const char*> hosts) {
  std::vector<SocketAddress> all;
  for (const char* each : hosts) all.push_back(at(each));
  return all;
}
std::string hosts(const std::vector<SocketAddress>& all) {
  std::string text;
  for (const SocketAddress& each : all) text += (text.empty() ? "" : " ") + each.host();
  return text;
}
std::error_code error(int number) { return {number, std::generic_category()}; }

/// Existing connections, by the host of each.
struct Crowd {
  AddressBook book;
  std::multimap<std::string, Quota::Place> places;

  std::string next(std::vector<SocketAddress> all, AddressOrder order = AddressOrder::kLeast) {
    Quota::Place place = book.choose(order, all, {});
    places.emplace(all.front().host(), std::move(place));
    return all.front().host();
  }
};

}  // namespace

TEST_CASE("spread: how near an address is", "[conn][spread]") {
  const std::vector<OwnAddress> own{{at("10.1.2.3", 0), 24},   {at("192.168.0.9", 0), 27},
                                    {at("fd00::5", 0), 64},    {at("172.16.0.1", 0), 128},
                                    {at("fe80::1%lo", 0), 64}, {at("10.9.0.1", 0), 0}};
  const std::vector<OwnAddress> without(own.begin(), own.end() - 1);
  const auto far = [&](const char* host) { return conn::distance(at(host), without); };
  CHECK(far("10.1.2.3") == Distance::kHere);
  CHECK(far("127.0.0.8") == Distance::kHere);
  CHECK(far("::1") == Distance::kHere);
  CHECK(far("10.1.2.200") == Distance::kLink);
  CHECK(far("10.1.3.3") == Distance::kFar);
  CHECK(far("192.168.0.31") == Distance::kLink);  // /27
  CHECK(far("192.168.0.32") == Distance::kFar);
  CHECK(far("172.16.0.1") == Distance::kHere);
  CHECK(far("172.16.0.2") == Distance::kFar);  // /32
  CHECK(far("fd00::5") == Distance::kHere);
  CHECK(far("fd00::1:5") == Distance::kLink);
  CHECK(far("fd00:0:0:1::5") == Distance::kFar);
  CHECK(far("fe80::2%lo") == Distance::kLink);
  CHECK(far("fe80::2") == Distance::kFar);  // the link is unknown
  // The network 0.0.0.0/0 contains all addresses of its family.
  CHECK(conn::distance(at("8.8.8.8"), own) == Distance::kLink);
  CHECK(conn::distance(at("2001:db8::1"), own) == Distance::kFar);
  CHECK(conn::distance(at("10.1.2.3"), {}) == Distance::kFar);
}

TEST_CASE("spread: this machine's addresses are known with their nets", "[conn][spread]") {
  bool loopback = false;
  for (const OwnAddress& each : conn::own_addresses()) {
    INFO(each.address.host() << '/' << each.net_bits);
    CHECK(each.net_bits <= 128);
    if (each.address.host() == "127.0.0.1") loopback = each.net_bits == 8;
  }
  CHECK(loopback);
}

TEST_CASE("spread: first leaves the order as it is, and counts nothing", "[conn][spread]") {
  AddressBook book;
  auto all = some({"10.0.0.1", "10.0.0.2"});
  book.report(AddressOrder::kFirst, all.front(), error(ECONNREFUSED));
  CHECK(book.choose(AddressOrder::kFirst, all, {}) == nullptr);
  CHECK(hosts(all) == "10.0.0.1 10.0.0.2");
}

TEST_CASE("spread: least takes the address with the fewest connections", "[conn][spread]") {
  Crowd crowd;
  const auto all = some({"10.0.0.1", "10.0.0.2", "fd00::3"});
  for (int i = 0; i < 30; ++i) crowd.next(all);
  for (const char* host : {"10.0.0.1", "10.0.0.2", "fd00::3"})
    CHECK(crowd.places.count(host) == 10);
  // Closed connections no longer count.
  crowd.places.erase("10.0.0.2");
  for (int i = 0; i < 10; ++i) CHECK(crowd.next(all) == "10.0.0.2");
  // A new address is filled up first, wherever it is in the list.
  for (int i = 0; i < 10; ++i)
    CHECK(crowd.next(some({"10.0.0.1", "10.0.0.4", "10.0.0.2"})) == "10.0.0.4");
}

TEST_CASE("spread: ports of one host are different places", "[conn][spread]") {
  AddressBook book;
  std::vector<SocketAddress> one{at("10.0.0.1", 1)};
  const Quota::Place place = book.choose(AddressOrder::kLeast, one, {});
  std::vector<SocketAddress> both{at("10.0.0.1", 1), at("10.0.0.1", 2)};
  (void)book.choose(AddressOrder::kLeast, both, {});
  CHECK(both.front().port() == 2);
}

TEST_CASE("spread: processes with one connection each do not all take the first",
          "[conn][spread]") {
  std::map<std::string, int> taken;
  for (int i = 0; i < 200; ++i) ++taken[Crowd().next(some({"10.0.0.1", "10.0.0.2"}))];
  CHECK(taken.size() == 2);  // except in one run of 2^199
}

TEST_CASE("spread: the others keep their order behind the one that is taken", "[conn][spread]") {
  AddressBook book;
  std::vector<Quota::Place> places;
  for (const char* host : {"10.0.0.1", "10.0.0.2", "10.0.0.4"}) {
    auto one = some({host});
    places.push_back(book.choose(AddressOrder::kLeast, one, {}));
  }
  auto all = some({"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"});
  (void)book.choose(AddressOrder::kLeast, all, {});
  CHECK(hosts(all) == "10.0.0.3 10.0.0.1 10.0.0.2 10.0.0.4");
  (void)book.choose(AddressOrder::kLeast, std::span(all).subspan(4), {});  // chooses none of none
}

TEST_CASE("spread: near takes what is near, and of that the least", "[conn][spread]") {
  Crowd crowd;
  const auto all = some({"192.0.2.1", "127.0.0.1", "203.0.113.7", "127.0.0.2"});
  for (int i = 0; i < 10; ++i) crowd.next(all, AddressOrder::kNear);
  CHECK(crowd.places.count("127.0.0.1") == 5);
  CHECK(crowd.places.count("127.0.0.2") == 5);
}

TEST_CASE("spread: an address that failed comes last, until a connection to it stands",
          "[conn][spread]") {
  Crowd crowd;
  const auto all = some({"10.0.0.1", "10.0.0.2"});
  const SocketAddress bad = at("10.0.0.1");
  const auto tell = [&](int number) {
    crowd.book.report(AddressOrder::kLeast, bad, number == 0 ? std::error_code() : error(number));
  };
  const auto one_each = [&] {
    crowd.places.clear();
    crowd.next(all);
    crowd.next(all);
    return crowd.places.count("10.0.0.1") == 1;
  };
  // Errors of an address that was not chosen, or caused by this process, do not count.
  tell(ECONNREFUSED);
  CHECK(one_each());
  for (const int number : {EMFILE, ENFILE, ENOMEM, ENOBUFS}) {
    tell(number);
    CHECK(one_each());
  }

  crowd.places.clear();
  tell(ECONNREFUSED);
  for (int i = 0; i < 20; ++i) CHECK(crowd.next(all) == "10.0.0.2");
  // Also by distance: an address that does not answer is avoided.
  CHECK(crowd.next(all, AddressOrder::kNear) == "10.0.0.2");
  CHECK(crowd.next(some({"10.0.0.1"})) == "10.0.0.1");  // the only address
  tell(0);
  CHECK(crowd.next(all) == "10.0.0.1");
}

TEST_CASE("spread: each transport that has hosts takes it", "[conn][spread]") {
  const conn::Registry all = conn::all_transports();
  for (const char* scheme : {"tcp", "tls", "rdma", "tls+rdma"}) {
    INFO(scheme);
    const conn::ConnectionType* type = all.find(scheme);
    if (type == nullptr) continue;  // not in this build
    const std::string url = std::string(scheme) + "://db1:7000?spread=";
    CHECK_NOTHROW(type->check(conn::Endpoint::parse(url + "near")));
    CHECK_THROWS_WITH(type->check(conn::Endpoint::parse(url + "most")),
                      testing::Contains("first, least, near"));
  }
  CHECK_THROWS_WITH(all.require("unix").check(conn::Endpoint::parse("unix:///run/x?spread=least")),
                    testing::Contains("unix has no option spread"));
}

TEST_CASE("spread: places may go on any thread", "[conn][spread]") {
  AddressBook book;
  const auto work = [&book] {
    for (int i = 0; i < 2000; ++i) {
      std::vector<SocketAddress> all(3);
      for (std::uint16_t port = 0; port < 3; ++port)
        (void)conn::numeric_address("10.0.0.1", static_cast<std::uint16_t>(i % 300 + port),
                                    all[port]);
      const Quota::Place place = book.choose(AddressOrder::kLeast, all, {});
      book.report(AddressOrder::kLeast, all.front(), i % 2 == 0 ? std::error_code() : error(EIO));
    }
  };
  std::thread one(work), other(work);
  one.join();
  other.join();
}
