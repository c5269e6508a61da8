// SPDX-License-Identifier: BSD-3-Clause
#include "conn/stopping.h"

#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "conn/core/connection_set.h"
#include "conn/error.h"
#include "conn/url/coded_failure.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

// begin() creates a timer with this delay in advance, so that no memory is needed when the last
// served connection ends: the timer is then set to expire at once, and calls the function that
// begin() got as `drained`. If connections are still served when the timer expires, it is set to
// this delay again.
constexpr ae::Duration kFarAway = std::chrono::hours(1);

// Pause before the next attempt to accept connections that have arrived but cannot be accepted yet.
constexpr ae::Duration kAcceptAgain = std::chrono::milliseconds(10);

}  // namespace

// --- watchers: objects that are notified of the stop ---------------------------------------------

void StopWatcher::stop_watching() noexcept {
  if (link_ == nullptr) return;
  *link_ = next_;
  if (next_ != nullptr) next_->link_ = link_;
  link_ = nullptr;
}

StopHook::StopHook(ae::EventLoop& loop, std::function<void()> begins) : begins_(std::move(begins)) {
  Stopping::of(loop).add(*this);
}

/// Destroys the accept handlers that keep() stored, just before the loop and its connections end,
/// and reports to the Stop that it need not wait for this loop.
class Stopping::End final : public LoopEndWatcher {
 public:
  explicit End(Stopping& of_whom) : stopping_(of_whom) {}
  void on_loop_end() noexcept override {
    stopping_.forget();
    report();
  }
  /// Reports to the Stop. Also called by the destructor of the Stopping, which may come before
  /// on_loop_end(), because the loop destroys such objects in reverse order of creation.
  void report() noexcept {
    if (const auto call = std::exchange(stopping_.accepted_, nullptr)) call();
    if (const auto call = std::exchange(stopping_.drained_, nullptr)) call();
  }

 private:
  Stopping& stopping_;
};

Stopping& Stopping::of(ae::EventLoop& loop) {
  static const char key = 0;
  ConnectionSet& connections = ConnectionSet::of(loop);  // created first, to outlive the Stopping
  std::unique_ptr<ae::LoopLocal>& slot = loop.local(&key);
  if (!slot) slot = std::make_unique<Stopping>(loop, connections);
  return static_cast<Stopping&>(*slot);
}

Stopping::Stopping(ae::EventLoop& loop, ConnectionSet& connections)
    : loop_(loop), connections_(connections), end_(std::make_unique<End>(*this)) {
  connections_.add(*end_);
}

Stopping::~Stopping() {
  connections_.when_none_served(nullptr);
  if (timer_ != 0) loop_.remove_time_event(timer_);
  end_->report();
  stop_accepting();
  while (watchers_ != nullptr) watchers_->stop_watching();
}

void Stopping::add(StopWatcher& watcher) {
  if (begun_)
    loop_.add_time_event(ae::Duration::zero(), [this] {
      tell();
      return ae::kNoMore;
    });
  watcher.next_ = watchers_;
  watcher.link_ = &watchers_;
  if (watchers_ != nullptr) watchers_->link_ = &watcher.next_;
  watchers_ = &watcher;
}

/// Notifies the watchers that are registered now. A watcher that is added meanwhile is notified by
/// a time event, so that watchers which add another one each time do not keep the loop here
/// forever.
void Stopping::tell() {
  std::exception_ptr thrown;
  StopWatcher* due = std::exchange(watchers_, nullptr);
  if (due != nullptr) due->link_ = &due;
  while (due != nullptr) {
    StopWatcher& watcher = *due;
    watcher.stop_watching();
    try {
      watcher.on_stop();
    } catch (...) {
      if (!thrown) thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(std::move(thrown));
}

// --- beginning and ending the stop ---------------------------------------------------------------

void Stopping::accept_arrived(ae::TimePoint until, std::function<void()> done) {
  stop_accepting();
  accept_timer_ = loop_.add_time_event(ae::Duration::zero(), [this] { return accept_some(); });
  accepted_ = std::move(done);
  accept_until_ = until;
  connections_.begin_accepting();
  for (StopWatcher* each = watchers_; each != nullptr; each = each->next_) each->on_accepting();
}

/// Accepts connections that have arrived, as many as one iteration may. Returns the time until the
/// next call.
ae::Duration Stopping::accept_some() {
  // An accept handler that runs below may end accepting, or begin it anew for another stop: the
  // timer is then another one.
  const ae::TimerId mine = accept_timer_;
  auto left = ArrivalSource::Left::kNothing;
  try {
    if (accept_until_ > std::chrono::steady_clock::now()) left = connections_.accept_arrived();
  } catch (...) {
    // The loop removes a timer whose function throws. The connections that still wait are accepted
    // by another timer.
    try {
      if (accept_timer_ == mine)
        accept_timer_ =
            loop_.add_time_event(ae::Duration::zero(), [this] { return accept_some(); });
    } catch (const std::bad_alloc&) {
      end_accepting();
    }
    throw;
  }
  if (accept_timer_ != mine) return ae::kNoMore;
  if (left == ArrivalSource::Left::kMore) return ae::Duration::zero();
  if (left == ArrivalSource::Left::kWaits) return kAcceptAgain;
  end_accepting();
  return ae::kNoMore;
}

void Stopping::end_accepting() {
  accept_timer_ = 0;
  if (const auto call = std::exchange(accepted_, nullptr)) call();
}

void Stopping::stop_accepting() noexcept {
  if (accept_timer_ != 0) loop_.remove_time_event(std::exchange(accept_timer_, 0));
  accepted_ = nullptr;
}

void Stopping::begin(ae::TimePoint hurries_from, std::function<void()> drained) {
  if (begun_) return;
  timer_ = loop_.add_time_event(kFarAway, [this]() -> ae::Duration {
    if (connections_.served() != 0) return kFarAway;
    timer_ = 0;
    connections_.when_none_served(nullptr);
    std::exchange(drained_, nullptr)();
    return ae::kNoMore;
  });
  drained_ = std::move(drained);
  connections_.when_none_served([this] { loop_.again(timer_, ae::Duration::zero()); });
  stop_accepting();
  hurries_from_ = hurries_from;
  begun_ = true;
  if (connections_.served() == 0) loop_.again(timer_, ae::Duration::zero());
  tell();
}

void Stopping::end() noexcept {
  begun_ = false;
  stop_accepting();
  connections_.when_none_served(nullptr);
  if (timer_ != 0) loop_.remove_time_event(std::exchange(timer_, 0));
  drained_ = nullptr;
}

Stopping::Left Stopping::cut() noexcept {
  const Failure why = coded_failure(std::make_error_code(std::errc::operation_canceled), [] {
    return "the server was stopped before the connection ended";
  });
  stop_accepting();
  Left left;
  connections_.cut_served(why, left.connections, left.bytes);
  return left;
}

void Stopping::keep(std::shared_ptr<const AcceptHandler> handler) {
  kept_.push_back(std::move(handler));
}

void Stopping::forget() noexcept {
  const auto handlers = std::exchange(kept_, {});
  // The handlers are destroyed here, when the list of them is already empty, because their
  // destructors may run any code, also code that calls keep().
  static_cast<void>(handlers);
}

}}  // namespace conn
