// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/setup.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "conn/kit/descriptor.h"
#include "conn/kit/interruption.h"
#include "conn/kit/retry_after.h"
#include "conn/setup_trace.h"
#include "conn/shm/type.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

Setup::Setup(const ShmType& type, SettingsPtr settings, const Endpoint& to)
    : type_(type), settings_(std::move(settings)), to_(to), socket_(type.socket_endpoint(to)) {
  SetupTrace::begin("connect");
}

Setup::~Setup() {
  stop_watching();
  // Closing alone would not reach the server while a child of fork() has a copy of the descriptor.
  if (made_.fd && !made_here_.inherited()) ::shutdown(made_.fd.get(), SHUT_RDWR);
}

// The functions below that return bool say whether the set-up is over: if made_ has no failure by
// then, it has succeeded.

void Setup::start(ae::EventLoop& loop, Done done) {
  loop_ = &loop;
  done_ = std::move(done);
  timer_ = loop.add_time_event(settings_->socket->connect_timeout, [this] {
    timer_ = 0;
    take([this] { return out_of_time(); });
    return ae::kNoMore;
  });
  if (look_up_next()) finish();
}

/// Runs `step`, the body of every callback from the loop; reports the result if `step` returns
/// true.
template <class Step>
void Setup::take(Step step) {
  try {
    if (!step()) return;
  } catch (const std::bad_alloc&) {
    made_.failure = out_of_memory();
  }
  finish();
}

/// Calls the caller's function with the result of the set-up; that may destroy this object.
void Setup::finish() {
  stop_watching();
  const Done done = std::move(done_);
  done(result());
}

Made Setup::wait(ae::TimePoint deadline) {
  const ae::TimePoint until =
      std::min(deadline, std::chrono::steady_clock::now() + settings_->socket->connect_timeout);
  if (!settings_->path.empty())
    for (const Endpoint::Host& host : to_.hosts) keep(resolve_until(host.name, to_.port, until));
  if (find_destination() ||
      greet(tcp::Dial::wait(*settings_->socket, type_.addresses(), socket_, until)))
    return result();
  while (!receive_answer())
    if (!poll_until(made_.fd.get(), POLLIN, until) && out_of_time()) break;
  return result();
}

// --- the destination: what the client's URL names for other schemes ------------------------------

/// Looks up the next host of the destination; connects the socket if there is no other. Returns
/// whether the set-up has failed.
bool Setup::look_up_next() {
  if (!settings_->path.empty() && host_ < to_.hosts.size()) {
    resolution_ = resolve_async(*loop_, to_.hosts[host_++].name, to_.port,
                                [this](Resolved answer) { resolved(std::move(answer)); });
    return false;
  }
  if (find_destination()) return true;
  dial_ = std::make_unique<tcp::Dial>(*loop_, settings_->socket, type_.addresses(), socket_,
                                      [this](tcp::Dialed result) { dialed(std::move(result)); });
  dial_->start();
  return false;
}

void Setup::resolved(Resolved answer) {
  resolution_.reset();
  take([&] {
    keep(std::move(answer));
    return look_up_next();
  });
}

void Setup::keep(Resolved answer) {
  if (answer.failure) made_.failure = std::move(answer.failure);
  found_.insert(found_.end(), answer.addresses.begin(), answer.addresses.end());
}

bool Setup::find_destination() {
  Failure why = std::exchange(made_.failure, {});  // why a host could not be resolved; may be empty
  if (settings_->path.empty()) return false;
  destination_ = destination_of(to_, found_, why);
  if (destination_.text.empty()) made_.failure = std::move(why);
  return destination_.text.empty();
}

// --- the socket, the client's hello and the server's answer --------------------------------------

void Setup::dialed(tcp::Dialed result) {
  // Owns the Dial, which called this function, until this function returns.
  const std::unique_ptr<tcp::Dial> dial = std::move(dial_);
  take([&] {
    if (greet(std::move(result))) return true;
    loop_->add_file_event(made_.fd.get(), ae::kReadable | ae::kTrusted, [this](int, ae::Mask) {
      // In a child of fork(), the parent process still reads the server's answer.
      if (made_here_.inherited()) return stop_watching();
      take([this] { return receive_answer(); });
    });
    watched_ = true;
    return false;
  });
}

/// Makes the memories, and sends them with the hello (set-up message) over a socket that a Dial has
/// connected. Returns whether the set-up is over.
bool Setup::greet(tcp::Dialed result) {
  static_cast<tcp::Dialed&>(made_) = std::move(result);
  if (made_.failure) return true;
  SetupTrace::begin("hello");
  Offer offer = make_memories(settings_->ring);
  made_.failure = std::move(offer.failure);
  if (made_.failure) return true;
  made_.channel = std::move(offer.channel);
  server_memory_ = std::move(offer.server);
  const std::array<int, 2> memories{offer.client.get(), server_memory_.get()};
  const std::string hello = encode(Hello{settings_->ring, settings_->ring, destination_});
  const int err = send_message(made_.fd.get(), hello, memories.data(), memories.size());
  if (err == 0) return false;
  // EPIPE: the server has closed the socket, but may have sent an answer with the reason before.
  return (err == EPIPE && receive_answer()) || fail(err, "send the hello");
}

bool Setup::receive_answer() {
  switch (answer_.receive(made_.fd.get())) {
    case Receipt::Step::kMore:
      return false;
    case Receipt::Step::kEnded:
      return fail(ECONNRESET, "the server closed the socket before its answer");
    case Receipt::Step::kForeign:
    case Receipt::Step::kNoDescriptors:
      return fail(EPROTO, "the server does not speak shm");
    case Receipt::Step::kDone:
      break;
  }
  Answer answer;
  if (answer_.descriptors() != 0 || !decode(answer_.message(), answer))
    return fail(EPROTO, "the server's answer breaks a rule");
  if (answer.status != Answer::kStands) return refuse(answer);
  if (check_sealed(server_memory_, made_.channel->reader.size()))
    return fail(EPROTO, "the server has not sealed the memory that it writes");
  return true;
}

// --- the result of the set-up --------------------------------------------------------------------

bool Setup::out_of_time() {
  if (resolution_) return fail(ETIMEDOUT, "the lookup takes too long");
  if (dial_) return fail(ETIMEDOUT);
  return fail(Interruption::ends() ? EINTR : ETIMEDOUT, "no answer");
}

bool Setup::refuse(const Answer& answer) {
  made_.failure = {std::make_error_code(std::errc::connection_refused),
                   "connect to " + socket_.path + ": refused: " + answer.text,
                   retry_after_in(answer.text)};
  return true;
}

bool Setup::fail(int err, std::string_view what) {
  std::string text = "connect to " + socket_.path;
  if (!what.empty()) text.append(": ").append(what);
  made_.failure = errno_failure(err, text);
  return true;
}

void Setup::stop_watching() noexcept {
  if (timer_ != 0) loop_->remove_time_event(std::exchange(timer_, 0));
  if (std::exchange(watched_, false)) loop_->remove_file_event(made_.fd.get(), ae::kReadable);
}

/// Returns the result of the set-up. After a failure this object's destructor closes the socket.
Made Setup::result() {
  Made made;
  if (made_.failure) {
    SetupTrace::failed();
    made.failure = std::move(made_.failure);
  } else {
    SetupTrace::end();
    made = std::move(made_);
  }
  return made;
}

}}}  // namespace conn::shm
