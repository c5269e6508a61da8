// SPDX-License-Identifier: BSD-3-Clause
#include "programs/doctor/checkup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "conn/capacity.h"
#include "programs/doctor/dial.h"
#include "programs/doctor/echo.h"
#include "programs/doctor/rows.h"

namespace doctor {
namespace {

using Tell = std::function<void(Verdict)>;

bool over_rdma(const conn::Endpoint& to) { return to.scheme.ends_with("rdma"); }

/// An address on this port at which a server could listen; "" if there is none.
std::string address_at(const Facts& facts, const Device& device, const Port& port) {
  for (const LocalAddress& each : facts.addresses) {
    const Place place = place_of(facts, each.address);
    const std::string host = each.address.host();
    if (place.device == &device && place.port == &port && !host.starts_with("fe80:")) return host;
  }
  return {};
}

class CheckUp {
 public:
  CheckUp(const conn::Registry& registry, const Facts& facts, const Plan& plan, const Tell& tell)
      : registry_(registry), facts_(facts), plan_(plan), tell_(tell) {}

  /// `to`: an endpoint to connect to over rdma, or null. With null every device is tested,
  /// otherwise only the one that the route uses.
  void of_machine(const conn::Endpoint* to) {
    for (const Row row : rows()) say(row(facts_));
    if (!facts_.built_with_rdma) return;
    conn::Endpoint any;
    any.scheme = "rdma";
    any.hosts = {{"*", false}};
    any.port = 1;
    if (to != nullptr && to->scheme == any.scheme) any.options = to->options;
    std::vector<Place> places;
    if (to != nullptr) {
      if (const Place place = place_of(facts_, route_to(*to, plan_.time_limit).source))
        places.push_back(place);
    } else {
      for (const Device& device : facts_.devices)
        for (const Port& port : device.ports) places.push_back({&device, &port});
    }
    for (const Place& each : places)
      if (std::string address = address_at(facts_, *each.device, *each.port); !address.empty()) {
        any.hosts = {{std::move(address), false}};
        break;
      }
    of_limits(any);
    for (const Place& each : places) loopback(*each.device, *each.port);
  }

  void of_limits(const conn::Endpoint& at) {
    try {
      for (const conn::Capacity& each :
           registry_.require(at.scheme).capacity(at, plan_.connections))
        say(limit(each, plan_.connections, plan_.all_connections));
    } catch (const conn::Error& error) {
      say({"limit", Level::kSkipped, error.what(), {}});
    }
  }

  void of_url(const conn::Endpoint& to) {
    std::vector<conn::Endpoint> ways = ways_of(registry_, to);
    const std::size_t asked_for = ways.size();
    for (std::size_t i = 0; i < asked_for; ++i) {
      const std::optional<conn::Endpoint> beside = over_tcp(registry_, ways[i]);
      if (beside && std::none_of(ways.begin(), ways.end(), [&](const conn::Endpoint& each) {
            return each.scheme == beside->scheme;
          }))
        ways.push_back(*beside);
    }
    std::vector<std::optional<Dialled>> found;
    for (const conn::Endpoint& each : ways) {
      found.emplace_back();
      if (registry_.find(each.scheme) != nullptr)
        found.back() = dial(registry_, each, plan_.time_limit);
    }
    for (std::size_t i = 0; i < ways.size(); ++i) {
      if (over_rdma(ways[i]) && !ways[i].hosts.empty())
        say(judge(facts_, route_to(ways[i], plan_.time_limit), ways[i].scheme));
      if (!found[i]) {
        say({ways[i].scheme + ": connect", Level::kFailed, "this program was built without it",
             "build it without RDMA=no and TLS=no"});
        continue;
      }
      const Dialled* beside = nullptr;
      if (const auto other = over_tcp(registry_, ways[i]))
        for (std::size_t j = 0; j < ways.size(); ++j)
          if (ways[j].scheme == other->scheme && found[j]) beside = &*found[j];
      for (Verdict& each : judge(facts_, *found[i], beside)) {
        // The TCP comparison was not requested, so a failure of it alone is only a note.
        if (i >= asked_for && each.level == Level::kFailed) each.level = Level::kNote;
        say(std::move(each));
      }
      if (beside != nullptr) beside_.push_back(compare(*found[i], *beside));
    }
    for (Verdict& each : beside_) say(std::move(each));
    beside_.clear();
  }

 private:
  void say(Verdict verdict) {
    failed_ = failed_ || verdict.level == Level::kFailed;
    tell_(std::move(verdict));
  }

  // Tests a queue pair with every feature that a connection uses, on the device itself.
  void loopback(const Device& device, const Port& port) {
    Verdict verdict{.row = "loopback " + name_of(device, port)};
    if (failed_) {
      verdict.level = Level::kSkipped;
      verdict.text = "skipped because of the failure above";
      return say(std::move(verdict));
    }
    conn::Endpoint at;
    at.scheme = "rdma";
    const std::string address = address_at(facts_, device, port);
    if (address.empty() || !port.active()) {
      verdict.level = Level::kSkipped;
      verdict.text = address.empty() ? "it has no address here" : "its link is down";
      return say(std::move(verdict));
    }
    at.hosts = {{address, false}};
    Dialled dialled;
    try {
      const EchoThread echo(registry_, at);
      dialled = dial(registry_, echo.at(), plan_.time_limit);
    } catch (const conn::Error& error) {
      dialled.failure = {std::make_error_code(std::errc::io_error), error.what()};
    }
    if (dialled.good()) {
      verdict.text = fmt::format("{:.1f} us there and back; {}; {}", dialled.median.value_or(0),
                                 dialled.features, dialled.path);
      verdict.microseconds = dialled.median;
    } else {
      const Dialled::Step* step = dialled.failed_step();
      verdict.level = Level::kFailed;
      verdict.text = (step != nullptr ? step->name + ": " : "") + dialled.failure.text;
      verdict.remedy = remedy(at);
    }
    say(std::move(verdict));
  }

  /// Returns how to raise the limit that leaves room for the fewest connections to `at`, or what to
  /// look at if all limits have room for some.
  std::string remedy(const conn::Endpoint& at) const {
    constexpr std::uint64_t kFew = 16;
    conn::Capacity tightest;
    tightest.connections = kFew;
    try {
      for (conn::Capacity& limit : registry_.require(at.scheme).capacity(at, kFew)) {
        if (limit.connections < tightest.connections && !limit.raise.empty())
          tightest = std::move(limit);
      }
    } catch (const conn::Error&) {
      // The limits cannot be read. The text of the failure has to do.
    }
    return !tightest.raise.empty()
               ? tightest.raise
               : "the message names what the device, a limit or a permission refuses; "
                 "docs/devices.md lists the requirements of a device";
  }

  const conn::Registry& registry_;
  const Facts& facts_;
  const Plan& plan_;
  const Tell& tell_;
  Verdicts beside_;
  bool failed_ = false;
};

}  // namespace

void check_up(const conn::Registry& registry, const Facts& facts, const Plan& plan,
              const std::function<void(Verdict)>& tell) {
  std::vector<conn::Endpoint> all, rdma;
  for (const std::string& url : plan.urls) {
    all.push_back(conn::Endpoint::parse(url));
    for (conn::Endpoint& each : ways_of(registry, all.back())) {
      // A transport that is not in this build gives a row, not a usage error.
      const bool missing = over_rdma(each) && !facts.built_with_rdma;
      if (!missing) registry.require(each.scheme).check(each);
      if (over_rdma(each)) rdma.push_back(std::move(each));
    }
  }
  CheckUp check(registry, facts, plan, tell);
  if (all.empty() || !rdma.empty()) {
    check.of_machine(rdma.empty() ? nullptr : &rdma.front());
  } else {
    for (const conn::Endpoint& each : all) check.of_limits(ways_of(registry, each).front());
  }
  for (const conn::Endpoint& each : all) check.of_url(each);
}

}  // namespace doctor
