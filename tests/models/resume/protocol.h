// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The protocol itself: what the software of an end does when something happens to it. Which things
// happen is decided elsewhere (steps.h).

#include "tests/models/resume/findings.h"
#include "tests/models/resume/state.h"

namespace resume_model {

/// One end of a state that is being changed. Functions of this class are small copies of what the
/// library does; a mutation changes one of them.
class Software {
 public:
  Software(State& state, int which, Findings& findings)
      : state_(state),
        which_(which),
        end_(state.ends[which]),
        findings_(findings),
        options_(findings.options) {}

  // ---- while the path is open
  /// Sends `count` bytes of the stream in one write.
  void write(int count);
  void say_goodbye();
  /// Takes the next completion of a received packet, or of a send.
  void poll_received();
  void poll_sent();
  /// Offers windows as long as there is memory, and room in the send queue.
  void offer_windows();

  /// The reader takes one byte.
  void read();

  // ---- when the path is lost
  /// The software gives the path up: fence, drain, count. The device may have kept only `kept`
  /// completions. `tells`: the peer gets a DISCONNECTED, without a goodbye.
  void lose_path(int kept, bool tells);
  /// The peer's DISCONNECTED.
  void on_disconnected(int generation);
  /// resume-time is over.
  void expire() { finish(Reason::kExpired); }

  // ---- the client
  void dial();
  /// Asks to be forgotten instead: all bytes are known to have come.
  void dial_to_forget();
  void give_up_dial();
  void on_answer(Message message);
  void on_refusal(Message message);

  // ---- the server
  void on_request(Message message);
  void on_forget(Message message);

  /// Completions of a queue pair that a mutation did not fence.
  void poll_unfenced(int path);

 private:
  bool post(Packet packet, int sent_then);
  void on_completion(int path, const Packet& packet);
  void count(const Packet& packet);
  void fence(int path, bool drains, int kept = kQueueLength);
  void fence_for_request(Mutation undrained);
  void begin_attempt();
  void leave_windows(int path);
  bool rewind(int received);
  void finish(Reason reason);
  void finish_if_all_came();
  bool finish_if_goodbye_taken();
  void send(MessageKind kind, int generation, int value);
  void refuse(int generation, Refusal why);
  int peer_units() const { return options_.units[1 - which_]; }

  State& state_;
  const int which_;
  End& end_;
  Findings& findings_;
  const Options& options_;
};

}  // namespace resume_model
