// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The set-up of a client's connection, one step after the other. In a list of schemes the names of
// the destination are looked up first. Then the socket is connected, the client sends its hello
// (set-up message) with both memories, and the server answers.

#include <functional>
#include <memory>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"
#include "conn/endpoint.h"
#include "conn/kit/resolver.h"
#include "conn/shm/destination.h"
#include "conn/shm/hello.h"
#include "conn/shm/memory.h"
#include "conn/shm/settings.h"
#include "conn/tcp/dial.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

class ShmType;

/// What a connection needs, at either end: its socket and its memory; or why there is none.
struct Made : tcp::Dialed {
  ChannelPtr channel;
};

class Setup {
 public:
  using Done = std::function<void(Made)>;
  /// The set-up of a connection of `type` to the endpoint `to`, with these settings; start() or
  /// wait() begins it. `type` must outlive this object. Throws std::bad_alloc.
  Setup(const ShmType& type, SettingsPtr settings, const Endpoint& to);
  /// Cancels the set-up if it is not over.
  ~Setup();
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  /// Begins the set-up. `done` is called once with the result, by the loop or by start() itself; it
  /// may destroy this object. Throws std::bad_alloc.
  void start(ae::EventLoop& loop, Done done);
  /// Runs the whole set-up and blocks until its result is known, at most until `deadline` or until
  /// option connect-timeout has passed. Throws std::bad_alloc.
  Made wait(ae::TimePoint deadline);

 private:
  template <class Step>
  void take(Step step);
  void finish();
  bool look_up_next();
  void resolved(Resolved answer);
  void keep(Resolved answer);
  bool find_destination();
  void dialed(tcp::Dialed result);
  bool greet(tcp::Dialed result);
  bool receive_answer();
  bool out_of_time();
  bool refuse(const Answer& answer);
  bool fail(int err, std::string_view what = {});
  void stop_watching() noexcept;
  Made result();

  const ShmType& type_;
  const SettingsPtr settings_;
  const Endpoint to_, socket_;  // endpoint of the URL, and that of the Unix socket
  ae::EventLoop* loop_ = nullptr;
  Done done_;
  ae::TimerId timer_ = 0;  // timer of option connect-timeout, for all steps together; 0: not set
  std::size_t host_ = 0;   // index in to_.hosts of the next host to resolve
  std::unique_ptr<Resolution> resolution_;
  std::vector<SocketAddress> found_;
  Destination destination_;
  std::unique_ptr<tcp::Dial> dial_;
  Made made_;
  Fd server_memory_;  // memory that the server writes, and must have sealed when it answers
  Receipt answer_;
  bool watched_ = false;
  ae::MadeHere made_here_;
};

}}}  // namespace conn::shm
