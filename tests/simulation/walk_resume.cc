// SPDX-License-Identifier: BSD-3-Clause
// Walks of connections that resume (WalkPlan::resume): what is chosen for them, what happens to
// their paths, and which errors that explains.
//
//   the end of a stream   all bytes that were written have arrived, whatever happened
//   an error              names something that has happened: a device was removed with bytes in it,
//                         the path was away for longer than resume-time, a call failed, the peer
//                         has aborted or has failed
//   after all faults      no connection is without a path, and none fails any more

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "conn/rdma/device/verbs.h"
#include "tests/simulation/walk_internal.h"

namespace simulation {
namespace {

// What may pass, beyond the fault itself, until the last end has noticed it and has dialled again:
// retries of the device, keepalives, pauses between attempts, an attempt that was under way, the
// listener's next try to listen.
constexpr Nanoseconds kMargin = 6s;

}  // namespace

void Walk::choose_resume_options() {
  const auto keepalive = pick(100, chance(0.7) ? 300 : 1000);
  resume_time_ = 1ms * pick(100, chance(0.7) ? 20000 : 3000);
  if (chance(0.5)) resume_time_ = 20s;
  const std::string resume =
      fmt::format("resume=yes&resume-time={}ms&keepalive=", resume_time_ / 1ms);
  options_ += fmt::format("{}{}{}ms", options_.empty() ? "?" : "&", resume, keepalive);
  if (chance(0.2)) options_ += fmt::format("&linger={}ms", pick(0, 3000));
  // The connecting end has some values of its own.
  client_options_ += fmt::format("{}{}ms&", resume, chance(0.5) ? keepalive : pick(100, 1000));
  closes_lost_ = chance(0.4);
  // Without linger, ends that still have bytes ask to be forgotten, too.
  if (chance(closes_lost_ ? 0.8 : 0.1))
    client_options_ += fmt::format("linger={}ms&", chance(0.8) ? 0 : pick(0, 3000));
  if (chance(0.3)) client_options_ += fmt::format("window={}&", std::uint64_t{1} << pick(12, 17));
  if (chance(0.3))
    client_options_ += fmt::format("send-buffer={}&", std::uint64_t{1} << pick(13, 19));
  if (chance(0.3)) client_options_ += fmt::format("send-queue={}&", pick(8, 64));
  if (chance(0.3)) client_options_ += fmt::format("in-place={}&", chance(0.5) ? "yes" : "no");
}

void Walk::choose_path_faults() {
  span_ = chance(0.7) ? 1ms * pick(20, 500) : 1ms * pick(1000, 20000);
  if (chance(0.3)) world_.config.failing_calls = chance(0.3) ? 0.01 : 0.001;
  report_.story += fmt::format(" {}ms calls {}", span_ / 1ms, world_.config.failing_calls);
  const std::uint64_t most = span_ > 1s ? 6 : 3;
  for (std::uint64_t i = pick(0, most); i != 0; --i)
    world_.after(1us * pick(1, static_cast<std::uint64_t>(span_ / 1us)),
                 [this] { fail_something(); });
}

// Notes that no path works for a while. Faults that follow each other closely count as one.
void Walk::path_away(Nanoseconds span) {
  const Nanoseconds now = world_.now();
  if (now > away_until_ + kMargin) away_since_ = now;
  away_until_ = std::max(away_until_, now + span);
  longest_away_ = std::max(longest_away_, away_until_ - away_since_);
}

void Walk::bring_back(Device*& device) {
  if (!device->removed) return;
  const bool near = &device == &near_;
  device =
      &world_.add_device(near ? "sim0" : "sim1", near ? "10.77.0.1" : "10.77.0.2", device->profile);
}

// Of a walk with closes_lost_: closes or aborts some ends a while after they have lost their path.
void Walk::watch_path(End& end) {
  const std::uint64_t id = end.connection->id();
  const auto is_lost = [](const conn::Connection& connection) {
    for (const auto& [key, value] : connection.info())
      if (key == "path-state") return value == "lost";
    return false;
  };
  // A client finds a new path within microseconds if there is one.
  const bool client = end.client;
  end.connection->set_path_handler([this, id, client, is_lost](conn::Connection& here) {
    if (!is_lost(here) || !chance(client ? 0.8 : 0.2)) return;
    loop_->add_time_event(1us * pick(0, chance(0.7) ? 100 : 1'000'000), [this, id, is_lost] {
      const auto found = ends_.find(id);
      if (found == ends_.end() || finishing_ || settled_) return ae::kNoMore;
      End& lost = *found->second;
      if (lost.in == nullptr || !is_lost(*lost.connection)) return ae::kNoMore;
      chance(0.1) ? abort(lost) : drop(lost);
      return ae::kNoMore;
    });
  });
}

void Walk::fail_something() {
  if (finishing_ || settled_) return;
  World* const world = &world_;
  const Nanoseconds span = chance(0.5)   ? 1us * pick(10, 50000)
                           : chance(0.7) ? 1ms * pick(50, 3000)
                                         : 1ms * pick(3000, 30000);
  const bool at_server = chance(0.5);
  Device*& device = at_server ? near_ : far_;
  const std::uint64_t kind = pick(0, 6);
  static constexpr std::array<const char*, 7> kNames = {"path",  "link", "address", "removal",
                                                        "event", "stop", "move"};
  ++report_.faults;
  report_.story += fmt::format(" {}{}@{}us/{}us", kNames[kind], at_server ? "S" : "C",
                               (world->now() - 1000s) / 1us, span / 1us);
  if (device->removed) return;
  // An event ends paths, too: they are away until all ends have dialled again.
  path_away(kind < 4 || kind == 5 ? span : 0ns);
  const auto later = [this, world](Nanoseconds delay, auto what) {
    world->after(delay, [this, what] {
      if (!settled_) what();
    });
  };
  switch (kind) {
    case 0:
      world->set_path(*near_, *far_, false);
      return later(span, [=, this] { world->set_path(*near_, *far_, true); });
    case 1:
      world->set_link(*device, false);
      return later(span, [=, &device] { world->set_link(*device, true); });
    case 2:
      world->set_address(*device, false);
      return later(span, [=, &device] {
        if (!device->address_present) world->set_address(*device, true);
      });
    case 3:
      ++removals_;
      world->remove_device(*device);
      return later(span, [this, &device] { bring_back(device); });
    case 4: {
      const int type = static_cast<int>(pick(0, 19));
      if (type == IBV_EVENT_DEVICE_FATAL) ++removals_;
      // Events of a queue pair or a queue name one; the others are about the device.
      if (type == IBV_EVENT_DEVICE_FATAL ||
          (type > IBV_EVENT_PATH_MIG_ERR && type != IBV_EVENT_QP_LAST_WQE_REACHED))
        world->raise(*device, type);
      return;
    }
    case 5:  // this process is stopped for a while
      ++stops_;
      return (void)world->advance(world->now() + std::min<Nanoseconds>(span, 2s));
    default:
      return world->move_address(*device);
  }
}

// Faults are over: lets all ends notice what has happened, and dial again.
void Walk::settle() {
  const auto lost = [this] {
    std::uint64_t found = ~std::uint64_t{0};
    for (const auto& [key, value] : registry_->require("rdma").statistics(*loop_)) {
      if (key == "paths_lost") found = value;
      if (key == "resumes") report_.resumes = value;
      if (key == "sessions_forgotten") report_.forgotten = value;
    }
    return found;
  };
  run_loop(8s);
  // Blocking connects of three seconds may have kept the loop from noticing losses for most of that
  // time; an end that was closed meanwhile lingers for three.
  const Nanoseconds until = world_.now() + 8s + std::min<Nanoseconds>(resume_time_, 20s);
  while (lost() != 0 && world_.now() < until && report_.complaint.empty()) run_loop(100ms);
  if (lost() != 0) complain(fmt::format("{} connections found no new path", lost()));
  settled_ = true;
}

// Complains of an error that nothing explains.
void Walk::explain(const End& end) {
  if (!resumes_) return;
  ++report_.errors;
  const std::string error = end.connection->last_error();
  const auto says = [&](std::string_view text) { return error.find(text) != std::string::npos; };
  // Of a peer that was never handed over nobody can say how it ended.
  const bool peer_gone = end.in == nullptr || end.in->writer_gone || end.out->reader_gone ||
                         (end.client && end.in->accepted == 0 && end.out->received == 0);
  // Where polling failed, the completion that has the reason is missing.
  if (world_.failed_calls() != 0 && says("stopped the queue pair")) return;
  for (const char* each :
       {"the peer wrote", "of unknown opcode", "of a wrong size", "floods", "offered a window",
        "ended its stream at", "does not know this session", "faster than it listens"})
    if (says(each)) complain("an impossible error: " + error);
  if (settled_ && !peer_gone) complain("an error after all faults: " + error);
  if (error.starts_with("connect to")) return;  // the first path, of connect()
  if (world_.failed_calls() != 0) return;
  // The peer's program may not have read yet that its end has failed.
  if (says("the peer has ended it") && removals_ + stops_ != 0) return;
  if (says("bytes that the peer misses")) {
    if (removals_ == 0 && stops_ == 0) complain("bytes are gone without a removal: " + error);
  } else if (says("no new path in")) {
    // A peer that has closed without a path says so only if there is one soon, and if it is the
    // client: else the rest of the time is waited for.
    if (!peer_gone && longest_away_ + kMargin < resume_time_)
      complain("it gave up too early: " + error);
  } else if (!peer_gone) {
    complain("an error that nothing explains: " + error);
  }
}

}  // namespace simulation
