// SPDX-License-Identifier: BSD-3-Clause
#include "conn/lists/list_carrier.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/fallback_type.h"
#include "conn/kit/interruption.h"
#include "conn/lists/time_left.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

using Clock = std::chrono::steady_clock;

std::string shown_endpoint(const Endpoint& endpoint) {
  Endpoint shown = endpoint;
  shown.options = {};  // options are not shown, because they may contain a pass phrase
  return shown.to_string();
}

}  // namespace

ListCarrier::ListCarrier(const FallbackType& type) : Carrier(type) {}
ListCarrier::~ListCarrier() = default;

const FallbackType& ListCarrier::list() const noexcept {
  return static_cast<const FallbackType&>(type());
}

ssize_t ListCarrier::refused() noexcept {
  errno = ENOTCONN;
  return -1;
}

// --- connecting ----------------------------------------------------------------------------------

void ListCarrier::connect(const Endpoint& to) {
  to_ = shown_endpoint(to);
  const FallbackType::Times times = list().times(to);
  dial_ = std::make_unique<Dial>(*loop(), list().candidates_for(to), times.delay, times.timeout,
                                 [this](ConnectionPtr winner) { dialled(std::move(winner)); });
}

void ListCarrier::dialled(ConnectionPtr winner) {
  const std::unique_ptr<Dial> over = std::move(dial_);
  // The reference is stored in a variable, because hand_over() gives this Carrier another host.
  CarrierHost& connection = host();
  try {
    skipped_ = over->not_taken();
    if (!winner) {
      connection.fail({over->failure().code, "connect to " + to_ + ": " + over->failure().text,
                       over->failure().retry_after});
    }
  } catch (const std::bad_alloc&) {
    connection.fail(out_of_memory());
  }
  // Exception that the registry's fallback handler threw; rethrown after the connect handler has
  // run.
  std::exception_ptr thrown;
  if (connection.state() == State::kConnecting) {
    try {
      hand_over(std::move(winner));
    } catch (...) {
      thrown = std::current_exception();
    }
    connection.watch_or_fail();  // requests the events for handlers that were set while connecting
  }
  (void)connection.run_connect_handler();
  if (thrown) std::rethrow_exception(thrown);
}

/// Continues the connection with the Carrier of `winner`, the first connection that is ready. This
/// Carrier passes to the winner's connection, which is then closed; the loop destroys both once no
/// function of theirs is executing.
void ListCarrier::hand_over(ConnectionPtr winner) {
  CarrierHost& connection = host();
  ae::EventLoop& here = *loop();
  const ConnectionType& taken = winner->type();
  connection.take_over(ConnectionCore::of(*winner));
  std::optional<Fallback> fallback;
  try {
    Origin origin;
    origin.facts = reasons();
    origin.facts.insert(origin.facts.begin(), {"carrier", std::string(taken.name())});
    if (!skipped_.empty()) {
      origin.path = "; " + describe(skipped_);
      fallback = Fallback{to_, std::string(taken.name()), skipped_};
    }
    connection.set_origin(std::move(origin));
  } catch (const std::bad_alloc&) {
    // There is no memory for the texts. Only the explanation of the skipped candidates is lost.
  }
  if (fallback) list().report(here, *fallback);
}

std::vector<std::pair<std::string, std::string>> ListCarrier::reasons() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Skipped& each : skipped_) all.emplace_back("not-" + each.scheme, each.why.text);
  return all;
}

/// Tries the candidates one after the other instead of concurrently, since the loop does not run
/// during a blocking call. Each candidate gets an equal part of the remaining time.
void ListCarrier::connect_blocking(const Endpoint& to, ae::TimePoint deadline) {
  to_ = shown_endpoint(to);
  deadline = std::min(deadline, Clock::now() + list().times(to).timeout);
  std::vector<Candidate> candidates = list().candidates_for(to);
  Failure why;
  for (std::size_t i = 0; i < candidates.size() && !Interruption::ends(); ++i) {
    Candidate& candidate = candidates[i];
    Skipped failed{candidate.scheme, SkipReason::kUnavailable, {}};
    if (candidate.type == nullptr) {
      failed.why = {std::make_error_code(std::errc::protocol_not_supported), candidate.unavailable};
    } else {
      const ae::Duration left = std::max(deadline - Clock::now(), ae::Duration::zero());
      const ae::Duration part = left / static_cast<ae::Duration::rep>(candidates.size() - i);
      ConnectionPtr winner;
      try {
        ConnectionPtr below = candidate.type->create(*loop());
        const ae::TimePoint until = Clock::now() + part;
        // Waits until the connection is writable, since a connected connection is not always ready
        // for data yet (see Dial::connected()).
        const bool connected = below->connect_blocking(with_time(candidate, part), part);
        if (connected && below->sync_wait(ae::kWritable, until - Clock::now()) &&
            below->state() == State::kConnected) {
          winner = std::move(below);
        } else {
          failed.why = {below->error_code(), below->last_error(), below->retry_after()};
          if (!failed.why && Interruption::ends())
            failed.why = {std::make_error_code(std::errc::interrupted),
                          "a signal ended the wait until it was ready for data"};
          else if (!failed.why)
            failed.why = {std::make_error_code(std::errc::timed_out),
                          "it was connected, and not ready for data in time"};
          failed.kind = kind_of(failed.why.code);
        }
      } catch (const Error& error) {
        failed.why = Failure(error);
        failed.kind = kind_of(failed.why.code);
      }
      // This call is outside the try block: if the program's on_fallback() handler throws an Error,
      // the next candidate must not be tried.
      if (winner) return hand_over(std::move(winner));
    }
    why.retry_after = std::max(why.retry_after, failed.why.retry_after);
    skipped_.push_back(std::move(failed));
  }
  why.code = code_of(skipped_);
  if (Interruption::ends()) why.code = std::make_error_code(std::errc::interrupted);
  why.text = "connect to " + to_ + ": " + describe(skipped_);
  fail(std::move(why));
}

// --- the end of the connection -------------------------------------------------------------------

void ListCarrier::close() noexcept {
  dial_.reset();
  host().release();
}

void ListCarrier::abandon() noexcept {
  if (dial_) dial_->abandon();
}

}}  // namespace conn
