// SPDX-License-Identifier: BSD-3-Clause
// Verdicts from a connection attempt and from the one over tcp beside it.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "programs/doctor/dial.h"

namespace doctor {
namespace {

std::string time_text(double microseconds) {
  return microseconds < 1000 ? fmt::format("{:.1f} us", microseconds)
                             : fmt::format("{:.2f} ms", microseconds / 1000);
}

bool over_rdma(const std::string& scheme) { return scheme.ends_with("rdma"); }

bool is_errno(const conn::Failure& failure, std::initializer_list<int> all) {
  for (const int each : all)
    if (failure.code == std::error_code(each, std::generic_category()) ||
        failure.code == std::error_code(each, std::system_category()))
      return true;
  return failure.code == std::errc::timed_out &&
         std::find(all.begin(), all.end(), ETIMEDOUT) != all.end();
}

/// The host answered, whether or not a server listens there.
bool reached(const Dialled& tcp) { return tcp.good() || is_errno(tcp.failure, {ECONNREFUSED}); }

bool timed_out(const Dialled& dialled) {
  return is_errno(dialled.failure, {ETIMEDOUT, EAGAIN, EHOSTUNREACH});
}

std::string remedy_of(const Dialled& dialled, const Dialled* beside) {
  const Dialled::Step* step = dialled.failed_step();
  if (step == nullptr) return {};
  const bool rdma = over_rdma(dialled.scheme);
  const bool stands = !dialled.path.empty();
  if (step->name == "resolve name")
    return "use an address, or correct the name (getent ahosts NAME)";
  if (step->name == "TLS handshake")
    return "the message says what was rejected: check ca=, cert= and key= of both ends, and their "
           "clocks";
  if (step->name == "queue pair") return "see the rows of limits: aeconn-doctor --limits URL";
  if (stands && is_errno(dialled.failure, {ECONNRESET, EPIPE}))
    return "the path is good: the other end's program ended the connection; it is no echo server "
           "and no server of Redis's protocol, or its log says why";
  if (stands && timed_out(dialled) && dialled.confirmed)
    return "the path is good: the other end's machine received what was sent, but its program does "
           "not answer; it is stuck, or no echo server and no server of Redis's protocol "
           "(aeconn-doctor --serve URL is one)";
  if (rdma && stands && dialled.steps.size() > 1)
    return "the handshake succeeds but data is lost: look for a firewall or switch that drops UDP "
           "4791 by size or rate, and for an interface or switch with a smaller MTU on the path";
  if (rdma && timed_out(dialled)) {
    if (beside != nullptr && reached(*beside))
      return "tcp reaches the host, but nothing answers over RDMA: allow UDP port 4791 in "
             "both directions (firewalls of both hosts, security groups); if it is open, the "
             "other end has no RDMA device with this address: run aeconn-doctor there";
    return "neither tcp nor RDMA reaches the host: check the address, the link and the route "
           "(ping, ip route get)";
  }
  if (is_errno(dialled.failure, {ECONNREFUSED}))
    return rdma
               ? "the host answers, but no server listens over RDMA on this port: start the server "
                 "with an rdma:// URL, or aeconn-doctor --serve URL"
               : "no server listens there: start the server, or aeconn-doctor --serve URL";
  if (rdma && is_errno(dialled.failure, {ENODEV, EADDRNOTAVAIL, ENETUNREACH}))
    return "see the rows addresses and route: the packets must leave through an RDMA device";
  if (stands && timed_out(dialled))
    return "the connection is established, but sent data is not acknowledged: look for an "
           "interface or switch with a smaller MTU on the path, or for a link that has just gone "
           "down";
  if (is_errno(dialled.failure, {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH}))
    return "check the address, the link, the route and firewalls (ping, ip route get)";
  if (stands)
    return "the peer is no echo server and no server of RESP, or it waits for something else";
  return "see the message; also run aeconn-doctor at the other end";
}

}  // namespace

Verdict judge(const Facts& facts, const Route& route, const std::string& scheme) {
  Verdict verdict{.row = scheme + ": route"};
  if (route.failure) {
    verdict.level = Level::kFailed;
    verdict.text = route.failure.text;
    verdict.remedy = "give this machine a route and an address: ip route get ADDRESS";
    return verdict;
  }
  const Place place = place_of(facts, route.source);
  const std::string from =
      fmt::format("{} is reached from {}", route.target.host(), route.source.host());
  if (place) {
    verdict.text = fmt::format("{}, which is {}", from, name_of(*place.device, *place.port));
    if (place.port->active()) return verdict;
    verdict.level = Level::kFailed;
    verdict.text += fmt::format(", and that is {}", place.port->state);
    verdict.remedy = fmt::format("ip link set {} up", interface_of(*place.device, *place.port));
    return verdict;
  }
  verdict.level = Level::kFailed;
  verdict.text = from + ", which belongs to no RDMA device in this network namespace";
  verdict.remedy =
      "use an address in the network of an RDMA device (row addresses), or source=ADDRESS "
      "in the URL";
  return verdict;
}

// The row of a certificate that ends at `ends`, a time of info().
Verdict judge_certificate(const Dialled& dialled, const std::string& whose,
                          const std::string& ends) {
  constexpr std::time_t kDay = 24 * 60 * 60, kSoon = 30 * kDay;
  Verdict verdict{.row = dialled.scheme + ": " + whose + " certificate"};
  std::tm when{};
  if (::strptime(ends.c_str(), "%Y-%m-%dT%H:%M:%SZ", &when) == nullptr) {
    verdict.level = Level::kSkipped;
    verdict.text = "it does not say when it ends";
    return verdict;
  }
  const std::time_t left = ::timegm(&when) - std::time(nullptr);
  verdict.text = left < 0 ? fmt::format("ended on {}", ends)
                          : fmt::format("ends on {}, in {} day{}", ends, left / kDay,
                                        left / kDay == 1 ? "" : "s");
  if (left >= kSoon) return verdict;
  // A peer that checks the certificate refuses it; this connection stands because none has checked.
  verdict.level = left < 0 ? Level::kFailed : Level::kNote;
  verdict.remedy = "renew the certificate, and have its program read its files again";
  return verdict;
}

Verdicts judge(const Facts& facts, const Dialled& dialled, const Dialled* beside) {
  Verdicts all;
  for (const Dialled::Step& each : dialled.steps) {
    Verdict verdict{.row = dialled.scheme + ": " + each.name,
                    .text = time_text(each.microseconds),
                    .microseconds = each.microseconds};
    if (!each.done) {
      verdict.level = Level::kFailed;
      verdict.text = fmt::format("{} (after {})", dialled.failure.text, verdict.text);
      verdict.remedy = remedy_of(dialled, beside);
    } else if (each.name == "round trips") {
      verdict.text += fmt::format(" is the median of {}", dialled.rounds);
    }
    all.push_back(std::move(verdict));
  }
  if (dialled.path.empty()) return all;
  Verdict path{.row = dialled.scheme + ": path", .text = dialled.path};
  if (!dialled.peer.empty()) path.text += "; " + dialled.peer + " answered";
  for (const Device& device : facts.devices) {
    for (const Port& port : device.ports) {
      if (dialled.mtu == 0 || !port.ethernet()) continue;
      // A path such as "rdma rxe0/1 gid ..." names the port.
      if (dialled.path.find(" " + name_of(device, port) + " ") == std::string::npos) continue;
      const auto mtu = facts.mtu.find(interface_of(device, port));
      if (mtu == facts.mtu.end() || dialled.mtu >= roce_mtu(mtu->second)) continue;
      path.level = Level::kNote;
      path.text += fmt::format("; MTU {}, and {} could take {}", dialled.mtu, name_of(device, port),
                               roce_mtu(mtu->second));
      path.remedy =
          "give the other end's network interface the same MTU, unless path-mtu= is "
          "intentionally smaller";
    }
  }
  all.push_back(std::move(path));
  if (!dialled.peer_certificate_ends.empty())
    all.push_back(judge_certificate(dialled, "peer", dialled.peer_certificate_ends));
  if (!dialled.certificate_ends.empty())
    all.push_back(judge_certificate(dialled, "own", dialled.certificate_ends));
  return all;
}

Verdict compare(const Dialled& rdma, const Dialled& tcp) {
  Verdict verdict{.row = "beside " + tcp.scheme};
  if (!rdma.median || !tcp.median) {
    verdict.level = Level::kSkipped;
    verdict.text = !rdma.median ? rdma.scheme + " has no round trips to compare"
                                : "nothing answered over " + tcp.scheme + ": " + tcp.failure.text;
    return verdict;
  }
  verdict.text = fmt::format("{} takes {} there and back, {} {}", rdma.scheme,
                             time_text(*rdma.median), tcp.scheme, time_text(*tcp.median));
  if (*rdma.median <= *tcp.median) return verdict;
  verdict.level = Level::kNote;
  verdict.text += "; soft-RoCE is always the slower of the two";
  return verdict;
}

}  // namespace doctor
