// SPDX-License-Identifier: BSD-3-Clause
#include "tests/models/resume/protocol.h"

#include <algorithm>

namespace resume_model {
namespace {

bool can_fill(const Window& window, const Options& options) {
  return window.state == WindowState::kOffered && window.filled < options.window_units;
}

/// The memory may be given out anew.
void free_window(Window& window, bool keeps_keys) {
  const Byte keys = keeps_keys ? window.keys : Byte{0};
  window = {};
  window.keys = keys;
}

}  // namespace

// ---- sending and receiving ----------------------------------------------------------------------
bool Software::post(Packet packet, int sent_then) {
  QueuePair& pair = state_.queue_pair(which_);
  if (pair.sent.full() || pair.awaited.full()) return false;
  if (packet.kind == PacketKind::kAnnouncement) packet.received = end_.received;
  pair.sent.push(packet);
  if (packet.completes()) pair.awaited.push(byte(sent_then));
  return true;
}

void Software::write(int count) {
  if (end_.next < end_.released) {
    findings_.violate(Check::kKeep, "bytes that are to be sent were released");
  }
  if (end_.next < end_.sent) findings_.note(Event::kSentAgain);
  PeerWindow& to = end_.peer_windows.items[0];
  const int sent_then = end_.next + count;
  for (int i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    post({.kind = PacketKind::kData,
          .value = byte(end_.next + i + 1),
          .slot = byte(to.used + i),
          .count = byte(last ? count : 0),
          .window = to.window,
          .received = 0},
         sent_then);
  }
  end_.next = byte(sent_then);
  end_.sent = std::max(end_.sent, end_.next);
  if (options_.release == Release::kPosted) end_.released = end_.next;
  to.used = byte(to.used + count);
  if (to.used == options_.window_units) end_.peer_windows.pop();
}

void Software::say_goodbye() {
  Packet packet{};
  packet.kind = PacketKind::kGoodbye;
  packet.value = byte(options_.units[which_]);
  post(packet, kGoodbyeAwaited);
  end_.goodbye = Goodbye::kSent;
}

void Software::offer_windows() {
  if (!state_.is_live(which_)) return;
  for (;;) {
    const auto open = [&](Byte index) { return can_fill(end_.windows[index], options_); };
    if (std::count_if(end_.line.items, end_.line.items + end_.line.size, open) >=
        options_.offered) {
      return;
    }
    int index = 0;
    while (index < options_.windows && end_.windows[index].state != WindowState::kFree) ++index;
    if (index == options_.windows) return;
    Packet packet{};
    packet.kind = PacketKind::kAnnouncement;
    packet.window = byte(index);
    if (!post(packet, 0)) return;
    Window& window = end_.windows[index];
    free_window(window, true);
    window.keys = byte(window.keys | 1 << end_.path);
    window.state = WindowState::kOffered;
    window.path = end_.path;
    end_.line.push(byte(index));
  }
}

void Software::on_completion(int path, const Packet& packet) {
  switch (packet.kind) {
    case PacketKind::kData:
      count(packet);
      break;
    case PacketKind::kAnnouncement:
      if (path == end_.path && !end_.peer_windows.full()) {
        end_.peer_windows.push({packet.window, 0});
      }
      if (options_.release == Release::kPeerWord) {
        end_.released = std::max(end_.released, packet.received);
      }
      break;
    case PacketKind::kGoodbye:
      end_.peer_total = byte(packet.value + 1);
      break;
    case PacketKind::kGoodbyeTaken:
      end_.goodbye = Goodbye::kTaken;
      break;
  }
}

void Software::count(const Packet& packet) {
  for (int i = 0; i < end_.line.size; ++i) {
    Window& window = end_.windows[end_.line.items[i]];
    if (!can_fill(window, options_)) continue;
    if (window.filled + packet.count > options_.window_units) {
      return findings_.violate(Check::kCount, "bytes beyond the end of the window");
    }
    window.filled = byte(window.filled + packet.count);
    end_.received = byte(end_.received + packet.count);
    return;
  }
  findings_.violate(Check::kCount, "bytes came and no window is offered");
}

void Software::poll_received() {
  on_completion(end_.path, state_.queue_pair(which_).received.pop());
  if (finish_if_goodbye_taken()) return;
  finish_if_all_came();
  if (end_.phase == Phase::kOpen) offer_windows();
}

void Software::poll_sent() {
  QueuePair& pair = state_.queue_pair(which_);
  --pair.completed_sends;
  const Byte sent_then = pair.awaited.pop();
  if (sent_then == kGoodbyeAwaited) {
    if (!options_.goodbye_answered) finish(Reason::kClosed);
    return;
  }
  if (options_.release == Release::kCompletion) {
    end_.released = std::max(end_.released, sent_then);
  }
  offer_windows();  // one may have waited for room in the send queue
}

void Software::poll_unfenced(int path) {
  const Packet packet = state_.paths[path].ends[which_].received.pop();
  if (packet.kind == PacketKind::kData) {
    const auto offered = [&](Byte index) {
      return end_.windows[index].state == WindowState::kOffered;
    };
    if (!std::any_of(end_.line.items, end_.line.items + end_.line.size, offered)) return;
  }
  on_completion(path, packet);
}

void Software::read() {
  Window& window = end_.windows[end_.line.items[0]];
  if (window.memory[window.read] != end_.read + 1) {
    findings_.violate(Check::kMemory, "the reader got another byte than was sent");
  }
  ++window.read;
  ++end_.read;
  const bool left = window.state == WindowState::kLeft;
  if (left) findings_.note(Event::kLeftWindowRead);
  if (window.read != window.filled || (window.filled != options_.window_units && !left)) return;
  free_window(window, false);
  end_.line.pop();
  offer_windows();
}

// ---- leaving a path -----------------------------------------------------------------------------
// Moves the queue pair to the error state. No packet reaches it from now on, and no key of it is
// valid. Completions that its device has kept are taken first.
void Software::fence(int path, bool drains, int kept) {
  QueuePair& pair = state_.paths[path].ends[which_];
  if (pair.state == QueuePairState::kError) return;
  const Byte before = end_.received;
  for (int i = 0; drains && i < pair.received.size && i < kept; ++i) {
    on_completion(path, pair.received.items[i]);
  }
  if (end_.received != before) findings_.note(Event::kCountedWhileDraining);
  pair.state = QueuePairState::kError;
  pair.completed_sends = 0;
  pair.received.clear();
  pair.awaited.clear();
  for (Window& window : end_.windows) window.keys = byte(window.keys & ~(1 << path));
}

// The windows of a path are used on it only. Those with unread bytes stay until these are read.
void Software::leave_windows(int path) {
  for (int i = end_.line.size - 1; i >= 0; --i) {
    Window& window = end_.windows[end_.line.items[i]];
    if (window.path != path || window.state != WindowState::kOffered) continue;
    if (window.read == window.filled) {
      free_window(window, true);
      end_.line.erase(i);
    } else {
      window.state = WindowState::kLeft;
    }
  }
  if (!options_.breaks(Mutation::kOldWindowsKept)) end_.peer_windows.clear();
}

void Software::lose_path(int kept, bool tells) {
  const int path = end_.path;
  const bool skips_fence = options_.breaks(which_ == kClient ? Mutation::kClientDialsUnfenced
                                                             : Mutation::kServerWaitsUnfenced);
  if (which_ == kServer && state_.ends[kClient].path < path) {
    findings_.note(Event::kNeverEstablished);
  }
  if (!skips_fence) fence(path, !options_.breaks(Mutation::kLostUndrained), kept);
  leave_windows(path);
  end_.phase = Phase::kLost;
  if (finish_if_goodbye_taken()) return;
  end_.goodbye = Goodbye::kNone;
  if (tells) {
    send(which_ == kClient ? MessageKind::kClientDisconnects : MessageKind::kServerDisconnects,
         path, 0);
  }
  finish_if_all_came();
}

void Software::on_disconnected(int generation) {
  if (!state_.is_live(which_) || end_.path != generation) return;
  if (options_.breaks(Mutation::kDisconnectIsEnd)) {
    fence(generation, true);
    leave_windows(generation);
    end_.phase = Phase::kLost;
    return finish(Reason::kEndOfStream);
  }
  lose_path(kQueueLength, false);
}

void Software::finish(Reason reason) {
  if (end_.phase == Phase::kEnded) return;
  const bool lost = end_.phase == Phase::kLost;
  if (!lost && state_.queue_pair(which_).state == QueuePairState::kReady) {
    fence(end_.path, reason == Reason::kExpired || reason == Reason::kEndOfStream);
  }
  leave_windows(end_.path);
  if (which_ == kClient && end_.phase == Phase::kDialing) {
    state_.paths[end_.generation].ends[kClient].state = QueuePairState::kError;
  }
  end_.phase = Phase::kEnded;
  end_.reason = reason;
  end_.peer_windows.clear();
  if (reason == Reason::kEndOfStream) {
    findings_.note(lost ? Event::kEndOfStreamWhileLost : Event::kEndOfStream);
    if (end_.received != peer_units()) {
      findings_.violate(Check::kEnd, "end of stream before the last byte");
    }
  } else if (reason == Reason::kClosed) {
    findings_.note(lost ? Event::kClosedWhileLost : Event::kClosed);
  } else if (reason == Reason::kExpired) {
    findings_.note(Event::kExpired);
  }
}

void Software::finish_if_all_came() {
  if (end_.phase == Phase::kEnded || end_.peer_total == 0) return;
  if (end_.received != end_.peer_total - 1) {
    return findings_.violate(Check::kEnd, "a goodbye came before the last byte");
  }
  if (options_.goodbye_answered && state_.is_live(which_)) {
    Packet packet{};
    packet.kind = PacketKind::kGoodbyeTaken;
    post(packet, 0);
  }
  finish(Reason::kEndOfStream);
}

bool Software::finish_if_goodbye_taken() {
  if (!options_.goodbye_answered || end_.goodbye != Goodbye::kTaken) return false;
  finish(Reason::kClosed);
  return true;
}

// The receiver's count decides where the sender goes on.
bool Software::rewind(int received) {
  if (received > end_.sent) {
    findings_.violate(Check::kRange, "the peer counted bytes that were never sent");
    return false;
  }
  if (received < end_.released) {
    findings_.note(Event::kRefusedGap);
    if (!options_.gap_allowed()) {
      findings_.violate(Check::kGap, "bytes that the peer has not counted were released");
    }
    finish(Reason::kGap);
    return false;
  }
  end_.released = end_.next = byte(received);
  return true;
}

void Software::send(MessageKind kind, int generation, int value) {
  if (!state_.messages.full()) state_.messages.push({kind, byte(generation), byte(value)});
}

// ---- the client ---------------------------------------------------------------------------------
void Software::dial() {
  begin_attempt();
  send(MessageKind::kRequest, end_.generation, end_.received);
}

void Software::dial_to_forget() {
  end_.forgets = 1;
  begin_attempt();
  send(MessageKind::kForget, end_.generation, end_.sent);
}

void Software::begin_attempt() {
  const bool reuses = options_.breaks(Mutation::kGenerationReused) && end_.generation != 0;
  if (reuses) {
    findings_.violate(Check::kOrder, "a generation is used for two attempts");
  } else {
    ++state_.newest;
  }
  --state_.dials;
  end_.generation = state_.newest;
  end_.phase = Phase::kDialing;
  Path& path = state_.paths[end_.generation];
  path.used = 1;
  if (reuses) path.ends[kClient].state = QueuePairState::kAbsent;
  findings_.note(Event::kDial);
}

void Software::give_up_dial() {
  findings_.note(Event::kAttemptGivenUp);
  end_.phase = Phase::kLost;
  if (options_.breaks(Mutation::kGenerationReused)) return;
  state_.paths[end_.generation].ends[kClient].state = QueuePairState::kError;
}

void Software::on_answer(Message message) {
  const bool old = message.generation != end_.generation || end_.phase != Phase::kDialing;
  if (old) findings_.note(Event::kAnswerOld);
  if (end_.phase != Phase::kDialing) return;
  if (old && !options_.breaks(Mutation::kOldAnswerTaken)) return;
  if (!rewind(message.value)) return;
  findings_.note(Event::kResumed);
  end_.path = end_.generation;
  end_.phase = Phase::kOpen;
  state_.queue_pair(kClient).state = QueuePairState::kReady;
  offer_windows();
}

void Software::on_refusal(Message message) {
  if (end_.phase != Phase::kDialing || message.generation != end_.generation) return;
  constexpr Reason kReasons[] = {Reason::kRefused, Reason::kGap, Reason::kClosed};
  finish(kReasons[message.value]);
}

// ---- the server ---------------------------------------------------------------------------------
void Software::refuse(int generation, Refusal why) {
  if (why == kUnknown) findings_.note(Event::kRefusedOver);
  send(MessageKind::kRefusal, generation, why);
}

// What has come over the old path is counted before the answer says how much came.
void Software::fence_for_request(Mutation undrained) {
  const int path = end_.path;
  const bool skips_fence = options_.breaks(Mutation::kServerAnswersUnfenced);
  const bool drains = !options_.breaks(undrained);
  if (!skips_fence) fence(path, drains);
  leave_windows(path);
  if (skips_fence || !drains) return;
  end_.phase = Phase::kLost;
  if (!finish_if_goodbye_taken()) finish_if_all_came();
}

void Software::on_request(Message message) {
  if (end_.phase == Phase::kEnded) return refuse(message.generation, kUnknown);
  const bool old = message.generation <= end_.generation;
  if (old) {
    findings_.note(Event::kRequestOld);
    if (options_.breaks(Mutation::kOldOffsetBelieved)) {
      rewind(message.value);
      return;
    }
    const bool again = message.generation == end_.generation;
    if (again && options_.breaks(Mutation::kGenerationReused)) {
      return send(MessageKind::kAnswer, message.generation, end_.received);
    }
    if (!options_.breaks(Mutation::kOldGenerationTaken)) return;
    findings_.violate(Check::kOrder, "the server takes a generation that is not greater");
  }
  if (end_.phase == Phase::kOpen) {
    fence_for_request(Mutation::kAnsweredUndrained);
    if (end_.phase == Phase::kEnded) return refuse(message.generation, kUnknown);
  }
  end_.phase = Phase::kLost;
  if (!rewind(message.value)) return refuse(message.generation, kGap);
  findings_.note(Event::kResumeAccepted);
  end_.generation = end_.path = message.generation;
  end_.phase = Phase::kOpen;
  end_.goodbye = Goodbye::kNone;
  state_.paths[message.generation].used = 1;
  state_.queue_pair(kServer).state = QueuePairState::kReady;
  send(MessageKind::kAnswer, message.generation, end_.received);
  offer_windows();
}

// The client has closed and knows that all it wrote has come. What its device said is compared with
// what has been counted here, after the old path has said all it has to say.
void Software::on_forget(Message message) {
  if (end_.phase == Phase::kEnded) return refuse(message.generation, kUnknown);
  if (message.generation <= end_.generation) return findings_.note(Event::kRequestOld);
  if (end_.phase == Phase::kOpen) {
    fence_for_request(Mutation::kForgetUndrained);
    if (end_.phase == Phase::kEnded) return refuse(message.generation, kUnknown);
  }
  end_.phase = Phase::kLost;
  end_.generation = message.generation;
  if (end_.received == message.value || options_.breaks(Mutation::kForgetBelieved)) {
    findings_.note(Event::kForgotten);
    refuse(message.generation, kForgotten);
    return finish(Reason::kEndOfStream);
  }
  findings_.note(Event::kRefusedGap);
  if (!options_.gap_allowed()) {
    findings_.violate(Check::kGap, "bytes that the peer has not counted were released");
  }
  refuse(message.generation, kGap);
  finish(Reason::kGap);
}

}  // namespace resume_model
