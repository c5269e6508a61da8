// SPDX-License-Identifier: BSD-3-Clause
#include "tests/models/resume/steps.h"

#include <iterator>

#include "tests/models/resume/checks.h"
#include "tests/models/resume/protocol.h"

namespace resume_model {
namespace {

class Steps {
 public:
  Steps(const State& state, Findings& findings, const StepHandler& handler)
      : state_(state), findings_(findings), options_(findings.options), handler_(handler) {}

  void all() {
    for (const int end : {kClient, kServer}) {
      if (state_.is_live(end)) {
        sends(end);
        polls(end);
        losses(end);
      }
      polls_of_unfenced(end);
      reads(end);
      expires(end);
    }
    for (int path = 0; path < kMaxPaths; ++path) {
      if (state_.paths[path].used == 0) continue;
      for (const int from : {kClient, kServer}) network(path, from);
    }
    dials();
    for (int i = 0; i < state_.messages.size; ++i) messages(i);
  }

 private:
  template <class Change>
  void step(StepKind kind, int subject, int detail, Change&& change) {
    State next = state_;
    change(next);
    simplify(next);
    check(next, findings_);
    handler_({kind, subject, detail}, next);
  }
  /// A step that only one end's software takes.
  template <class Change>
  void software(StepKind kind, int end, int detail, Change&& change) {
    step(kind, end, detail, [&](State& next) {
      Software software(next, end, findings_);
      change(software);
    });
  }

  void sends(int which);
  void polls(int which);
  void polls_of_unfenced(int which);
  void losses(int which);
  void reads(int which);
  void expires(int which);
  void network(int path, int from);
  void deliver(State& next, int path, int from);
  void dials();
  void messages(int index);
  void arrive(State& next, Message message);

  const State& state_;
  Findings& findings_;
  const Options& options_;
  const StepHandler& handler_;
};

void Steps::sends(int which) {
  const End& end = state_.ends[which];
  const QueuePair& pair = state_.queue_pair(which);
  const int total = options_.units[which];
  if (end.goodbye != Goodbye::kNone || pair.awaited.full()) return;
  for (int count = 1; count <= 2 && !end.peer_windows.empty(); ++count) {
    if (end.peer_windows.items[0].used + count > options_.window_units) break;
    if (end.next + count > total || pair.sent.size + count > kQueueLength) break;
    software(StepKind::kWrite, which, count, [&](Software& it) { it.write(count); });
  }
  const bool all_came = end.received == options_.units[1 - which];
  if (options_.closes[which] && end.next == total && (options_.closes_early || all_came) &&
      !pair.sent.full()) {
    software(StepKind::kSayGoodbye, which, 0, [](Software& it) { it.say_goodbye(); });
  }
}

void Steps::polls(int which) {
  const QueuePair& pair = state_.queue_pair(which);
  if (!pair.received.empty()) {
    software(StepKind::kPollReceived, which, 0, [](Software& it) { it.poll_received(); });
  }
  if (pair.completed_sends != 0) {
    software(StepKind::kPollSent, which, 0, [](Software& it) { it.poll_sent(); });
  }
}

// Only a mutation leaves a queue pair behind that still works.
void Steps::polls_of_unfenced(int which) {
  const End& end = state_.ends[which];
  if (end.phase == Phase::kEnded) return;
  for (int path = 0; path < kMaxPaths; ++path) {
    if (path == end.path && end.phase == Phase::kOpen) continue;
    const QueuePair& pair = state_.paths[path].ends[which];
    if (pair.received.empty() || pair.state != QueuePairState::kReady) continue;
    software(StepKind::kPollUnfenced, which, path, [&](Software& it) { it.poll_unfenced(path); });
  }
}

// A path is lost when packets or acknowledgements no longer arrive. An end may also give up one
// that works: a time-out that is too short, a port that went down, a move to another loop.
void Steps::losses(int which) {
  const Path& path = state_.paths[state_.ends[which].path];
  const bool broken = path.cut[kClient] != 0 || path.cut[kServer] != 0 ||
                      path.ends[1 - which].state == QueuePairState::kError;
  const int cost = broken ? 0 : 1;
  if (state_.failures < cost) return;
  const auto lose = [&](StepKind kind, bool tells, int kept) {
    step(kind, which, (tells ? 10 : 0) + kept, [&](State& next) {
      const bool device = kind == StepKind::kLoseDevice;
      findings_.note(broken ? Event::kPathLost : Event::kPathLostThoughItWorks);
      if (device) findings_.note(Event::kCompletionsLost);
      next.failures = byte(next.failures - cost - (device ? 1 : 0));
      Software(next, which, findings_).lose_path(kept, tells);
    });
  };
  for (const bool tells : {false, true}) {
    if (options_.completions_lost && state_.failures > cost) {
      for (int kept = 0; kept < state_.queue_pair(which).received.size; ++kept) {
        lose(StepKind::kLoseDevice, tells, kept);
      }
    }
    lose(StepKind::kLosePath, tells, kQueueLength);
  }
}

void Steps::reads(int which) {
  const End& end = state_.ends[which];
  if (end.line.empty()) return;
  const Window& window = end.windows[end.line.items[0]];
  if (window.read == window.filled) return;
  software(StepKind::kRead, which, 0, [](Software& it) { it.read(); });
}

// The client does not give up while it has attempts left and something may still fail.
void Steps::expires(int which) {
  if (state_.ends[which].phase != Phase::kLost) return;
  if (which == kClient && state_.dials != 0 && state_.failures != 0) return;
  software(StepKind::kExpire, which, 0, [](Software& it) { it.expire(); });
}

void Steps::network(int path, int from) {
  const Path& now = state_.paths[path];
  const QueuePair& sender = now.ends[from];
  const QueuePair& receiver = now.ends[1 - from];
  if (now.cut[from] != 0) return;
  if (!sender.sent.empty() && receiver.state != QueuePairState::kAbsent) {
    const bool waits = receiver.state == QueuePairState::kReady && receiver.received.full() &&
                       sender.sent.items[0].completes();
    if (!waits) {
      step(StepKind::kDeliver, path, from, [&](State& next) { deliver(next, path, from); });
    }
  }
  const bool alive =
      sender.state == QueuePairState::kReady || receiver.state == QueuePairState::kReady;
  if (state_.failures == 0 || !alive) return;
  step(StepKind::kCut, path, from, [&](State& next) {
    --next.failures;
    next.paths[path].cut[from] = 1;
    next.paths[path].ends[1 - from].completed_sends = 0;  // acknowledgements that were on their way
  });
}

void Steps::deliver(State& next, int path, int from) {
  Path& at = next.paths[path];
  QueuePair& sender = at.ends[from];
  QueuePair& receiver = at.ends[1 - from];
  const bool late = sender.state == QueuePairState::kError;
  const bool is_data = sender.sent.items[0].kind == PacketKind::kData;
  if (receiver.state == QueuePairState::kError) {
    if (!late && is_data) findings_.note(Event::kFencedWrite);
    return sender.sent.clear();
  }
  const Packet packet = sender.sent.pop();
  if (is_data) {
    Window& window = next.ends[1 - from].windows[packet.window];
    if ((window.keys >> path & 1) == 0) {  // the key is not valid: both queue pairs fail
      at.cut[kClient] = at.cut[kServer] = 1;
      return;
    }
    window.memory[packet.slot] = packet.value;
    if (late) findings_.note(Event::kLateWrite);
  }
  if (packet.completes()) {
    receiver.received.push(packet);
    if (sender.state == QueuePairState::kReady && at.cut[1 - from] == 0) ++sender.completed_sends;
  }
  if (next.ends[from].phase == Phase::kOpen && next.ends[from].path == path) {
    Software(next, from, findings_).offer_windows();
  }
}

void Steps::dials() {
  const End& client = state_.ends[kClient];
  if (client.phase == Phase::kLost && state_.dials != 0 && state_.newest + 1 < kMaxPaths) {
    const bool all_came = client.received == options_.units[kServer];
    const bool closes = options_.forgets && options_.closes[kClient] &&
                        client.released == options_.units[kClient] &&
                        (options_.closes_early || all_came);
    if (client.forgets == 0) {
      software(StepKind::kDial, kClient, 0, [](Software& it) { it.dial(); });
    }
    if (closes) {
      software(StepKind::kDialToForget, kClient, 0, [](Software& it) { it.dial_to_forget(); });
    }
  }
  if (client.phase != Phase::kDialing) return;
  if (state_.failures != 0) {
    step(StepKind::kGiveUpDial, kClient, 0, [&](State& next) {
      --next.failures;
      Software(next, kClient, findings_).give_up_dial();
    });
  }
  if (state_.messages.empty()) {
    software(StepKind::kDialFails, kClient, 0, [](Software& it) { it.give_up_dial(); });
  }
}

void Steps::messages(int index) {
  const Message message = state_.messages.items[index];
  const int kind = static_cast<int>(message.kind);
  step(StepKind::kMessage, kind, message.generation, [&](State& next) {
    next.messages.erase(index);
    arrive(next, message);
  });
  if (state_.failures == 0) return;
  step(StepKind::kMessageLost, kind, message.generation, [&](State& next) {
    --next.failures;
    next.messages.erase(index);
    if (message.kind == MessageKind::kRequest) findings_.note(Event::kRequestLost);
  });
  const bool asks = message.kind == MessageKind::kRequest || message.kind == MessageKind::kForget;
  if (!asks || state_.messages.full()) return;
  step(StepKind::kMessageDoubled, kind, message.generation, [&](State& next) {
    --next.failures;
    findings_.note(Event::kRequestDoubled);
    arrive(next, message);
  });
}

void Steps::arrive(State& next, Message message) {
  Software client(next, kClient, findings_);
  Software server(next, kServer, findings_);
  switch (message.kind) {
    case MessageKind::kRequest:
      return server.on_request(message);
    case MessageKind::kAnswer:
      return client.on_answer(message);
    case MessageKind::kRefusal:
      return client.on_refusal(message);
    case MessageKind::kClientDisconnects:
      return server.on_disconnected(message.generation);
    case MessageKind::kServerDisconnects:
      return client.on_disconnected(message.generation);
    case MessageKind::kForget:
      return server.on_forget(message);
  }
}

constexpr const char* kStepNames[] = {"writes",
                                      "says goodbye",
                                      "polls a received message",
                                      "polls a completed send",
                                      "polls a queue pair that it did not fence: path",
                                      "reads a byte",
                                      "gives the path up",
                                      "gives the path up, completions went with the device",
                                      "ends: no time left",
                                      "a packet arrives, sent by",
                                      "packets no longer arrive from",
                                      "dials",
                                      "has closed, and asks to be forgotten",
                                      "gives the attempt up",
                                      "has an attempt fail",
                                      "arrives",
                                      "is lost",
                                      "arrives, and once more later"};
static_assert(std::size(kStepNames) == static_cast<std::size_t>(StepKind::kNumber));
constexpr const char* kMessageNames[] = {
    "request",          "answer", "refusal", "client's DISCONNECTED", "server's DISCONNECTED",
    "request to forget"};

}  // namespace

void for_each_step(const State& state, Findings& findings, const StepHandler& handler) {
  Steps(state, findings, handler).all();
}

std::string describe(const Step& step) {
  constexpr const char* kEnds[] = {"client", "server"};
  const char* what = kStepNames[static_cast<int>(step.kind)];
  switch (step.kind) {
    case StepKind::kDeliver:
    case StepKind::kCut:
      return "path " + std::to_string(step.subject) + ": " + what + " the " + kEnds[step.detail];
    case StepKind::kMessage:
    case StepKind::kMessageLost:
    case StepKind::kMessageDoubled:
      return std::string(kMessageNames[step.subject]) + " " + std::to_string(step.detail) + " " +
             what;
    case StepKind::kWrite:
    case StepKind::kPollUnfenced:
      return std::string(kEnds[step.subject]) + " " + what + " " + std::to_string(step.detail);
    default:
      return std::string(kEnds[step.subject]) + " " + what;
  }
}

bool is_failure(StepKind kind) {
  switch (kind) {
    case StepKind::kLosePath:
    case StepKind::kLoseDevice:
    case StepKind::kExpire:
    case StepKind::kCut:
    case StepKind::kGiveUpDial:
    case StepKind::kDialFails:
    case StepKind::kMessageLost:
    case StepKind::kMessageDoubled:
      return true;
    default:
      return false;
  }
}

}  // namespace resume_model
