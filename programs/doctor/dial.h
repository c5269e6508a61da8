// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Connects to a URL, timing each step, and derives verdicts from the result.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "conn/registry.h"
#include "programs/doctor/facts.h"
#include "programs/doctor/verdict.h"

namespace doctor {

/// The result of a connection attempt.
struct Dialled {
  struct Step {
    std::string name;
    double microseconds = 0;
    bool done = false;
  };
  std::string scheme;
  std::vector<Step> steps;  ///< the steps in order; the last one is not done if it failed
  conn::Failure failure;    ///< empty if everything succeeded
  std::string path;         ///< Connection::path(); "" if the connection was never established
  /// whether all sent bytes are acknowledged, if only by the peer's machine
  bool confirmed = false;
  unsigned mtu = 0;      ///< MTU of the path, over RDMA
  std::string peer;      ///< kind of peer: "an echo", "a server of RESP", "something else"
  std::string features;  ///< features of the queue pair: "keys window, inline 256, receives shared"
  std::size_t rounds = 0;        ///< number of measured round trips
  /// ends of both ends' certificates as info() has them: "2027-01-31T12:00:00Z"; "" if none
  std::string certificate_ends, peer_certificate_ends;
  std::optional<double> median;  ///< median of the round trips, in microseconds

  bool good() const noexcept { return !failure; }
  const Step* failed_step() const noexcept {
    return steps.empty() || steps.back().done ? nullptr : &steps.back();
  }
};

/// Connects to `to`, which has a single scheme. Blocks; each wait takes at most `time_limit`.
Dialled dial(const conn::Registry& registry, const conn::Endpoint& to, ae::Duration time_limit);

/// Returns an endpoint for each candidate of a list of schemes, with the options that its transport
/// supports; otherwise one endpoint.
std::vector<conn::Endpoint> ways_of(const conn::Registry& registry, const conn::Endpoint& to);
/// Returns the same address over the transport to compare with: tcp for rdma, tls for tls+rdma,
/// with the options that it supports. Returns no value for other schemes, or if that transport is
/// not built in.
std::optional<conn::Endpoint> over_tcp(const conn::Registry& registry, const conn::Endpoint& to);

/// The source address of packets to a target, according to the kernel's routes.
struct Route {
  conn::SocketAddress target, source;
  conn::Failure failure;  ///< set if there is no route
};
/// Finds the route to the first host of the endpoint, resolved within `time_limit`. The option
/// `source`, if set, overrides the route.
Route route_to(const conn::Endpoint& to, ae::Duration time_limit);

// The functions below make verdicts; they are pure.
/// Judges whether the source address of a route belongs to an RDMA device.
Verdict judge(const Facts& facts, const Route& route, const std::string& scheme);
/// Returns all verdicts of one connection attempt. `beside`: the attempt over tcp, if any; it
/// distinguishes a firewall from a machine that is down.
Verdicts judge(const Facts& facts, const Dialled& dialled, const Dialled* beside);
/// Compares an attempt over RDMA with one over TCP, in one line.
Verdict compare(const Dialled& rdma, const Dialled& tcp);

}  // namespace doctor
