// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One connection to a URL, step by step with the time of each; and what follows from it.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "conn/registry.h"
#include "programs/doctor/facts.h"
#include "programs/doctor/verdict.h"

namespace doctor {

/// What a dial found.
struct Dialled {
  struct Step {
    std::string name;
    double microseconds = 0;
    bool done = false;
  };
  std::string scheme;
  std::vector<Step> steps;       ///< in order; the last is not done where it failed
  conn::Failure failure;         ///< none: all went well
  std::string path;              ///< as Connection::path(); "" where it never stood
  bool confirmed = false;        ///< all that was sent: the peer's machine, if not its program
  unsigned mtu = 0;              ///< of the path, over RDMA
  std::string peer;              ///< who answered: "an echo", "a server of RESP", "something else"
  std::string features;          ///< of the queue pair: "keys window, inline 256, receives shared"
  std::size_t rounds = 0;        ///< trips there and back, and in microseconds:
  std::optional<double> median;  ///< of them

  bool good() const noexcept { return !failure; }
  const Step* failed_step() const noexcept {
    return steps.empty() || steps.back().done ? nullptr : &steps.back();
  }
};

/// Dials `to`, which is of one scheme, and waits here: each wait is `patience` at most.
Dialled dial(const conn::Registry& registry, const conn::Endpoint& to, ae::Duration patience);

/// The ways that a list of schemes has, each with the options that it knows; one otherwise.
std::vector<conn::Endpoint> ways_of(const conn::Registry& registry, const conn::Endpoint& to);
/// The same place over what carries RDMA's traffic otherwise: rdma is tcp, tls+rdma is tls, with
/// the options that these know. Nothing for others, and where that transport is not built in.
std::optional<conn::Endpoint> over_tcp(const conn::Registry& registry, const conn::Endpoint& to);

/// The address that packets to a target leave from, as the kernel's routes say.
struct Route {
  conn::SocketAddress target, source;
  conn::Failure failure;  ///< there is none
};
/// Of the first of the endpoint's hosts, whose lookup may take `patience`. Its option source wins.
Route route_to(const conn::Endpoint& to, ae::Duration patience);

// What is said of them: pure.
/// Whether an RDMA device has the source.
Verdict judge(const Facts& facts, const Route& route, const std::string& scheme);
/// All rows of one dial. `beside`: the dial over tcp, if there was one: it tells a firewall from a
/// machine that is down.
Verdicts judge(const Facts& facts, const Dialled& dialled, const Dialled* beside);
/// Both in one line.
Verdict compare(const Dialled& rdma, const Dialled& tcp);

}  // namespace doctor
