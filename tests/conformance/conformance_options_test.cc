// SPDX-License-Identifier: BSD-3-Clause
// Each option of each transport in the option tables: with its minimum, its maximum, each keyword,
// and a value out of range; in a URL, through a list, through a layer, in configure(), for
// listeners, by Redial, with a blocking connect, and in C.

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "c/aeconn.h"
#include "conn/fallback_type.h"
#include "conn/redial.h"
#include "conn/url/option_table.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"
#include "tests/support/tls_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::OptionRow;
using conn::State;
using testing::Contains;
using testing::Site;
using namespace std::chrono_literals;

namespace {

struct Value {
  conn::Options options;  // the option, and others that it requires
  std::string key, value;
  bool good = true;
  bool time = false;
};

/// The option rows of a type, its own and those of the types below it.
std::vector<const OptionRow*> rows_of(const conn::Registry& registry,
                                      const conn::ConnectionType& type) {
  std::vector<const conn::OptionTable*> tables{&conn::list_options()};
  for (const auto& each : registry.types())
    if (each->option_table() != nullptr) tables.push_back(each->option_table());
  std::vector<const OptionRow*> rows;
  for (const conn::OptionTable* table : tables)
    for (const conn::OptionGroup& group : table->groups())
      for (const OptionRow& row : group.rows)
        if (type.find_option(row.name()) == &row &&
            std::find(rows.begin(), rows.end(), &row) == rows.end())
          rows.push_back(&row);
  return rows;
}

/// A file with a revocation list, which option crl-check needs.
const std::string& revocation_list() {
  static const testing::TempFolder folder;
  static const std::string file = testing::Authority(folder).revoke({});
  return file;
}

std::vector<Value> values_of(const conn::ConnectionType& type, const OptionRow& row) {
  using Kind = OptionRow::Kind;
  std::vector<Value> all;
  const auto add = [&](std::string value, bool good, conn::Options with = {}) {
    with.set(row.name(), value);
    all.push_back(
        {std::move(with), row.name(), std::move(value), good, row.kind() == Kind::kDuration});
  };
  conn::Options with;
  if (row.name() == "auth-clients") with.set("ca", testing::test_identity().cert);
  if (row.name() == "crl-check") with.set("crl", revocation_list());
  for (const std::string& word : row.words()) add(word, true, with);
  const std::string unit = row.kind() == Kind::kDuration ? "ns" : "";
  switch (row.kind()) {
    case Kind::kText:
      return all;
    case Kind::kFlag:
    case Kind::kWord:
      add("neither", false);
      return all;
    default:
      break;
  }
  if (row.words().empty()) add("much", false);
  add("-1" + unit, false);
  std::uint64_t least = row.min();
  if (row.range_text().starts_with('`')) {  // the minimum is another option's value
    const std::string other = row.range_text().substr(1, row.range_text().find('`', 1) - 1);
    const OptionRow* const its_row = type.find_option(other);
    REQUIRE(its_row != nullptr);
    least = std::max(least, its_row->min());
    with.set(other, std::to_string(least));
  }
  add(std::to_string(least) + unit, true, with);
  add(std::to_string(row.max()) + unit, true);
  if (least > 0) add(std::to_string(least - 1) + unit, false, with);
  if (row.max() < UINT64_MAX) add(std::to_string(row.max() + 1) + unit, false);
  return all;
}

std::vector<Value> values(const Site& site) {
  std::vector<Value> all;
  for (const OptionRow* row : rows_of(site.registry, site.type))
    for (Value& value : values_of(site.type, *row)) all.push_back(std::move(value));
  return all;
}

conn::Options current_options(const Site& site) {
#if AECONN_TLS
  if (site.transport.name.find("tls") != std::string::npos)
    return testing::test_tls_options(testing::test_server_name(site.transport.name));
#endif
  return {};
}

conn::Endpoint with(conn::Endpoint to, const conn::Options& options) {
  to.options = to.options.merged_with(options);
  return to;
}

/// The connect may have failed, but not because of its options.
void require_no_complaint(const conn::Failure& why) {
  INFO(why.text);
  REQUIRE(why.code != std::errc::invalid_argument);
  REQUIRE(why.text.find("must be") == std::string::npos);
}

conn::Failure failure_of(const Connection& connection) {
  return {connection.error_code(), connection.last_error()};
}

}  // namespace

TEST_CASE("options: each is accepted over its whole range and not beyond, by URL and configure()",
          "[conformance][options]") {
  FOR_EVERY_TRANSPORT(transport) {
    // memory is a test transport without an option table.
    if (transport.name.ends_with("memory")) return;
    Site site(transport);
    const conn::Options before = current_options(site);
    for (const Value& each : values(site)) {
      CAPTURE(each.options.to_string());
      const std::string url = with(site.fresh(), each.options).to_string();
      const conn::Endpoint to = conn::Endpoint::parse(url);
      REQUIRE(to.options.values() == each.options.values());
      if (each.good) {
        REQUIRE_NOTHROW(site.type.check(to));
        REQUIRE_NOTHROW(site.type.configure(before.merged_with(each.options)));
        REQUIRE_NOTHROW(site.type.check(site.fresh()));
        REQUIRE_NOTHROW(site.type.configure(before));
      } else {
        const std::string complaint = each.key + "=" + each.value + ": must be ";
        REQUIRE_THROWS_WITH(site.type.check(to), Contains(complaint));
        REQUIRE_THROWS_WITH(site.type.configure(before.merged_with(each.options)),
                            Contains(complaint));
      }
    }
    conn::Endpoint unknown = site.fresh();
    unknown.options.set("colour", "red");
    REQUIRE_THROWS_WITH(site.type.check(unknown), Contains(" option colour"));
    REQUIRE(site.type.find_option("colour") == nullptr);
  }
}

TEST_CASE("options: an old name is accepted, and one that is gone says what to do",
          "[conformance][options]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (transport.name.ends_with("memory")) return;
    Site site(transport);
    const conn::Options before = current_options(site);
    const auto check = [&](std::string_view key, const std::string& value) {
      conn::Endpoint to = site.fresh();
      to.options.set(std::string(key), value);
      site.type.check(to);
      site.type.configure(before.merged_with({{std::string(key), value}}));
      site.type.configure(before);
    };
    for (const std::string& scheme : site.fresh().schemes()) {
      const conn::ConnectionType* const type = site.registry.find(scheme);
      if (type == nullptr || type->option_table() == nullptr) continue;
      for (const conn::FormerOption& former : type->option_table()->former()) {
        CAPTURE(scheme, former.name);
        if (!former.is_gone()) {
          REQUIRE(site.type.find_option(former.name) == site.type.find_option(former.now));
          REQUIRE_NOTHROW(check(former.name, "1"));
        } else if (site.type.find_option(former.name) == nullptr) {
          REQUIRE_THROWS_WITH(check(former.name, "1"),
                              Contains(type->option_table()->gone(former.name)));
        } else {  // another transport of the list has it
          REQUIRE_NOTHROW(check(former.name, "1"));
        }
      }
    }
  }
}

TEST_CASE("options: times are accepted over their whole range wherever a connection is made",
          "[conformance][options]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (transport.name.ends_with("|memory")) return;
    Site site(transport);
    const conn::Options before = current_options(site);
    std::vector<ConnectionPtr> servers;
    const conn::AcceptHandler keep = [&](ConnectionPtr next) {
      servers.push_back(std::move(next));
    };
    const conn::ListenerPtr listener = site.listen(keep);
    const conn::Endpoint address = testing::address_of(*listener);
    conn::Endpoint place = address;  // the first available address of a list
    place.scheme = transport.name;
    for (const Value& each : values(site)) {
      if (!each.good || !each.time) continue;
      CAPTURE(each.options.to_string());
      const conn::Endpoint to = with(place, each.options);
      // The maximum leaves enough time for everything.
      const bool greatest =
          each.value == std::to_string(site.type.find_option(each.key)->max()) + "ns";
      const auto connects = [&](const conn::Endpoint& there) {
        bool done = false;
        const ConnectionPtr client = site.connect(there, [&](Connection&) { done = true; });
        RUN_UNTIL(site.loop, done);
        require_no_complaint(failure_of(*client));
        REQUIRE((!greatest || client->state() == State::kConnected));
      };
      connects(to);
      site.type.configure(before.merged_with(each.options));
      connects(place);
      site.type.configure(before);
      {
        const conn::ListenerPtr here =
            site.type.listen(site.loop, with(site.fresh(), each.options),
                             [&](ConnectionPtr next) { keep(std::move(next)); });
        conn::Endpoint there = testing::address_of(*here);
        there.scheme = transport.name;
        connects(there);
      }
      {
        const ConnectionPtr waiting = site.type.create(site.loop);
        (void)waiting->connect_blocking(to, 0ms);
        require_no_complaint(failure_of(*waiting));
      }
      {
        conn::Redial redial(site.registry, site.loop, to, {});
        RUN_UNTIL(site.loop, redial.connection() != nullptr || redial.counters().failures > 0);
        require_no_complaint(redial.last_failure());
        REQUIRE((!greatest || redial.connection() != nullptr));
      }
      servers.clear();
    }
    for (const Value& each : values(site)) {
      if (each.good) continue;
      CAPTURE(each.options.to_string());
      REQUIRE_THROWS_WITH(conn::Redial(site.registry, site.loop, with(place, each.options), {}),
                          Contains("must be"));
      REQUIRE_THROWS_WITH(site.type.listen(site.loop, with(site.fresh(), each.options), keep),
                          Contains("must be"));
      const ConnectionPtr waiting = site.type.create(site.loop);
      REQUIRE_FALSE(waiting->connect_blocking(with(place, each.options), 1s));
      REQUIRE(waiting->error_code() == std::errc::invalid_argument);
      REQUIRE_THAT(waiting->last_error(), Contains("must be"));
    }
  }
}

TEST_CASE("options: C has the same ranges", "[conformance][options]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (transport.name.ends_with("memory") || aeconn_has_transport(transport.name.c_str()) == 0)
      return;
    Site site(transport);
    const std::unique_ptr<aeconn_loop, decltype(&aeconn_loop_free)> loop(aeconn_loop_new(),
                                                                         &aeconn_loop_free);
    for (const Value& each : values(site)) {
      const std::string url = with(site.deserted(), each.options).to_string();
      CAPTURE(url);
      aeconn_conn* const made = aeconn_connect_wait(loop.get(), url.c_str(), 0);
      const std::string error = made == nullptr ? aeconn_error() : "";
      if (made != nullptr) aeconn_close(made);
      REQUIRE((error.find("must be") == std::string::npos) == each.good);
    }
  }
}
