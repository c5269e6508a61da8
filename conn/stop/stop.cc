// SPDX-License-Identifier: BSD-3-Clause
#include "conn/stop.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "ae/core/fork.h"
#include "ae/core/poster.h"
#include "conn/core/connection_set.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

/// Signals that arrive within this time after the first one count as the same request, because
/// timeout(1) and terminals send a signal both to a process and to its process group.
constexpr ae::Duration kSameRequest = std::chrono::milliseconds(100);
/// How long the loops may take to accept the connections that have arrived before the stop. They
/// need so long only if a handler waits, or descriptors are missing. If half of Settings::limit is
/// less, that applies instead.
constexpr ae::Duration kAcceptTime = std::chrono::seconds(1);

/// Calls `fn` until it no longer throws std::bad_alloc, and returns its result.
template <class Fn>
decltype(auto) surely(const Fn& fn) {
  for (;;) {
    try {
      return fn();
    } catch (const std::bad_alloc&) {
      std::this_thread::yield();
    }
  }
}

/// Posts `fn` to the loop of `poster`. Copying `fn` may need memory; if there is none, tries again
/// until there is. Returns false if the loop has ended.
template <class Fn>
bool post_surely(const ae::Poster& poster, const Fn& fn) {
  return surely([&] { return poster.post(fn); });
}

/// Begins the stop of one loop; tries again while there is no memory for it. Rethrows an exception
/// of a StopWatcher, which is notified of the stop.
template <class Fn>
void begin_surely(Stopping& stopping, ae::TimePoint hurries_from, const Fn& drained) {
  for (;;) {
    try {
      return stopping.begin(hurries_from, drained);
    } catch (const std::bad_alloc&) {
      if (stopping.begun()) throw;
      std::this_thread::yield();
    }
  }
}

void remove(ae::EventLoop& loop, ae::TimerId& timer) noexcept {
  if (timer != 0) loop.remove_time_event(std::exchange(timer, 0));
}

}  // namespace

/// The state that the loops share with the Stop. Members are used only on the thread of the
/// controlling loop, unless their comment says otherwise.
struct Stop::Core final : std::enable_shared_from_this<Stop::Core>, private LoopEndWatcher {
  Core(ae::Loops& loops, Settings its_settings, std::function<void()> its_end)
      : settings(std::move(its_settings)), end(std::move(its_end)) {
    if (settings.ends) end = std::move(settings.ends);
    for (std::size_t i = 0; i < loops.size(); ++i)
      parts.push_back({loops.loop(i), loops.poster(i)});
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core() override {
    if (fd >= 0) close(fd);
  }

  void watch(const std::function<void()>& start);
  void restore_signals() const noexcept;
  void start(ae::EventLoop& loop);
  AcceptHandler keep(ae::EventLoop& loop, AcceptHandler handler);
  void on_signal();
  void on_request();
  void begin();
  void accept_arrived(bool limited);
  void accepted();
  void stop_listening();
  void drained();
  void cut();
  void finish();
  void end_one(bool begun) noexcept;
  /// Posts a function to each loop. On the loop, the function calls `fn` with the loop's Stopping,
  /// or calls `gone` if the loop is being destroyed. Returns how many loops accepted the post.
  template <class Fn, class Gone>
  std::size_t on_parts(const Fn& fn, const Gone& gone);
  void on_loop_end() noexcept override {
    const std::shared_ptr<Core> alive = shared_from_this();
    leave();
  }
  void leave() noexcept;
  /// Runs `first` and then leave() on the thread of the controlling loop, so that no function of
  /// the program (Settings::begins, ends) runs afterwards. On another thread than that loop's,
  /// waits until both have run. If the loop has ended, or if the process is a child of fork(), does
  /// not wait, and runs `first` on the calling thread.
  template <class First>
  void leave_from_here(const First& first) noexcept;
  /// Whether the calling thread may use the controlling loop: it was the last one that ran the
  /// loop, or it called start(); in the latter case no other thread may be running the loop.
  bool is_here() const noexcept;

  struct Part {
    ae::EventLoop* loop;
    ae::Poster poster;
  };
  Settings settings;
  std::function<void()> end;
  std::vector<Part> parts;           // the loops of the server; never changes
  ae::EventLoop* control = nullptr;  // controlling loop; null before start() and after leave()
  ae::Poster controller;             // posts to the controlling loop; set by start()
  std::thread::id started_on;        // the thread that called start()
  int fd = -1;                       // descriptor of signalfd(2); -1: no signals are caught
  sigset_t before{};                 // the signal mask of the constructing thread
  std::atomic<bool> signalled{false};
  std::atomic<Phase> phase{Phase::kServing};
  std::atomic<bool> kept{false};      // true if keep() has stored a handler; used on any thread
  ae::TimePoint asked{};              // time of the first request to stop
  ae::TimePoint same_until{};         // a request to stop before this time repeats the first one
  ae::TimerId limit_timer = 0;        // timer that calls cut(); 0: not set
  ae::TimerId accept_timer = 0;       // timer that calls stop_listening(); 0: not set
  std::atomic<bool> has_left{false};  // true if leave() has run; used on any thread
  ae::TimePoint hurry{};              // the time when half of Settings::limit is over
  std::size_t unaccepted = 0;         // number of loops that still accept connections
  bool told = false;                  // true if stop_listening() was called
  std::size_t undrained = 0;          // number of loops that still have connections of clients
  // Number of loops that have not reported the result of Stopping::cut() yet.
  std::size_t uncut = 0;
  bool cutting = false;
  const ae::MadeHere made_here;
  mutable ae::Mutex mutex;             // guards the members that follow
  std::vector<ListenerPtr> listeners;  // listeners of the server; emptied when listening ends
  Left left;
};

AcceptHandler Stop::Core::keep(ae::EventLoop& loop, AcceptHandler handler) {
  const auto shared = std::make_shared<const AcceptHandler>(std::move(handler));
  Stopping::of(loop).keep(shared);
  kept = true;
  return [shared](ConnectionPtr arrival) { (*shared)(std::move(arrival)); };
}

// --- signals -------------------------------------------------------------------------------------

/// Blocks the signals of Settings::signals and catches them with signalfd(2). `start` must call
/// start() on the thread of the controlling loop.
void Stop::Core::watch(const std::function<void()>& start) {
  if (!settings.signals.empty()) {
    sigset_t set;
    sigemptyset(&set);
    for (const int each : settings.signals) sigaddset(&set, each);
    fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) throw errno_error(errno, "signalfd");
    pthread_sigmask(SIG_BLOCK, &set, &before);
  }
  try {
    start();
  } catch (...) {
    leave_from_here([] {});
    restore_signals();
    throw;
  }
}

void Stop::Core::restore_signals() const noexcept {
  if (fd >= 0 && !signalled) pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Stop::Core::start(ae::EventLoop& loop) {
  ConnectionSet& set = ConnectionSet::of(loop);
  controller = loop.poster();
  started_on = std::this_thread::get_id();
  if (fd >= 0)
    loop.add_file_event(fd, ae::kReadable, [self = this](int, ae::Mask) {
      const std::shared_ptr<Core> alive = self->shared_from_this();
      self->on_signal();
    });
  // These steps come last because they cannot throw: if a step before them throws, the loop has no
  // reference to this object, which another thread may then destroy.
  set.add(*this);
  control = &loop;
}

void Stop::Core::leave() noexcept {
  stop_watching();
  ae::EventLoop* const loop = std::exchange(control, nullptr);
  if (loop != nullptr && fd >= 0) loop->remove_file_event(fd, ae::kReadable);
  if (loop != nullptr) remove(*loop, limit_timer), remove(*loop, accept_timer);
  has_left = true;
  has_left.notify_all();
}

template <class First>
void Stop::Core::leave_from_here(const First& first) noexcept {
  if (is_here()) {
    first();
    return leave();
  }
  if (!made_here.inherited() && post_surely(controller, [self = shared_from_this(), &first] {
        first();
        self->leave();
      }))
    return has_left.wait(false);
  first();
}

bool Stop::Core::is_here() const noexcept {
  const std::thread::id here = std::this_thread::get_id();
  const ae::Poster::Queue* const queue = ae::Poster::Queue::of(controller);
  return started_on == here || (queue != nullptr && queue->thread() == here);
}

void Stop::Core::on_signal() {
  signalfd_siginfo info;
  while (read(fd, &info, sizeof info) == sizeof info) {
    signalled = true;
    on_request();
  }
}

void Stop::Core::on_request() {
  const ae::TimePoint now = std::chrono::steady_clock::now();
  // The phase is tested and changed in one atomic step, because another thread may destroy the Stop
  // at the same time, which sets kEnded.
  if (Phase from = Phase::kServing; phase.compare_exchange_strong(from, Phase::kDraining)) {
    asked = now;
    same_until = now + kSameRequest;
    begin();
    return;
  }
  // Before listening has ended, a further request to stop counts as a repetition of the first.
  if (phase == Phase::kDraining && told && now >= same_until) cut();
}

// --- the phases of the stop ----------------------------------------------------------------------

template <class Fn, class Gone>
std::size_t Stop::Core::on_parts(const Fn& fn, const Gone& gone) {
  std::size_t count = 0;
  for (const Part& part : parts)
    count += post_surely(part.poster, [fn, gone, &part, self = shared_from_this()] {
      // Posted functions also run while their loop is being destroyed; the stop must not begin
      // there.
      if (part.poster.open())
        fn(surely([&]() -> Stopping& { return Stopping::of(*part.loop); }));
      else
        gone();
    });
  return count;
}

void Stop::Core::begin() {
  const ae::TimePoint none = ae::TimePoint::max();
  const bool limited = settings.limit < none - asked;
  // The timer for the limit is set first, because destroying the listeners may wait for each loop.
  if (limited && control != nullptr)
    limit_timer = surely([this] {
      return control->add_time_event(asked + settings.limit, [self = this] {
        const std::shared_ptr<Core> alive = self->shared_from_this();
        self->limit_timer = 0;
        self->cut();
        return ae::kNoMore;
      });
    });
  // The stop goes on if the function throws: the program may run the loop again.
  std::exception_ptr thrown;
  try {
    if (settings.begins) settings.begins();
  } catch (...) {
    thrown = std::current_exception();
  }
  if (phase == Phase::kDraining) accept_arrived(limited);  // otherwise the Stop was destroyed
  if (thrown) std::rethrow_exception(std::move(thrown));
}

/// Has each loop accept the connections that have arrived. `limited`: Settings::limit applies.
void Stop::Core::accept_arrived(bool limited) {
  const ae::TimePoint none = ae::TimePoint::max();
  hurry = limited ? asked + settings.limit / 2 : none;
  const ae::TimePoint until = std::min(hurry, asked + kAcceptTime);
  // The timer ends listening on all loops even if a handler on one of them does not return.
  if (control != nullptr)
    accept_timer = surely([this, until] {
      return control->add_time_event(until, [self = this] {
        const std::shared_ptr<Core> alive = self->shared_from_this();
        self->accept_timer = 0;
        self->stop_listening();
        return ae::kNoMore;
      });
    });
  const auto one_accepted = [self = shared_from_this()] {
    (void)post_surely(self->controller, [self] { self->accepted(); });
  };
  unaccepted = on_parts(
      [one_accepted, until, self = shared_from_this()](Stopping& stopping) {
        if (self->phase == Phase::kDraining)
          surely([&] { stopping.accept_arrived(until, one_accepted); });
      },
      one_accepted);
  if (unaccepted == 0) finish();  // all loops have ended
}

/// Counts a loop that has accepted the connections that had arrived, or has ended. When no loop is
/// left, ends listening.
void Stop::Core::accepted() {
  if (--unaccepted == 0 && phase == Phase::kDraining) stop_listening();
}

/// Destroys the listeners, and begins the stop on each loop, which notifies the StopWatchers.
void Stop::Core::stop_listening() {
  if (std::exchange(told, true)) return;
  if (control != nullptr) remove(*control, accept_timer);
  std::vector<ListenerPtr> stopped;
  {
    const std::lock_guard lock(mutex);
    stopped.swap(listeners);
  }
  stopped.clear();  // destroying a listener may wait for other loops
  same_until = std::max(same_until, std::chrono::steady_clock::now() + kSameRequest);
  // The phase has changed if, during the steps above, the Stop was destroyed or a nested iteration
  // of the loop has aborted the connections.
  if (phase != Phase::kDraining) return;
  const auto one_drained = [self = shared_from_this()] {
    (void)post_surely(self->controller, [self] { self->drained(); });
  };
  undrained = on_parts(
      [one_drained, from = hurry, self = shared_from_this()](Stopping& stopping) {
        if (self->phase == Phase::kDraining) begin_surely(stopping, from, one_drained);
      },
      one_drained);
  if (undrained == 0) finish();  // all loops have ended
}

/// Counts a loop that has no connection of a client left, or has ended. When no loop is left, ends
/// the stop.
void Stop::Core::drained() {
  if (--undrained == 0 && !cutting) finish();
}

void Stop::Core::cut() {
  if (phase != Phase::kDraining) return;
  stop_listening();  // StopWatchers are notified before connections are aborted
  if (phase != Phase::kDraining || std::exchange(cutting, true)) return;
  const auto answer = [self = shared_from_this()](Left more) {
    {
      const std::lock_guard lock(self->mutex);
      self->left.connections += more.connections;
      self->left.bytes += more.bytes;
    }
    (void)post_surely(self->controller, [self] {
      if (--self->uncut == 0) self->finish();
    });
  };
  uncut = on_parts(
      [answer, self = shared_from_this()](Stopping& stopping) {
        // The Stop may have been destroyed meanwhile, for example by a StopWatcher.
        answer(self->phase == Phase::kDraining ? stopping.cut() : Left());
      },
      [answer] { answer({}); });
  if (uncut == 0) finish();
}

void Stop::Core::finish() {
  if (phase.exchange(Phase::kEnded) == Phase::kEnded) return;
  if (control != nullptr) remove(*control, limit_timer), remove(*control, accept_timer);
  end();
}

/// Called on the thread of the only loop when the Stop is destroyed and the loop may go on: makes
/// Stopping::begun() false if it is true (`begun`), and destroys the handlers that keep() stored.
void Stop::Core::end_one(bool begun) noexcept {
  if (made_here.inherited() || !controller.open()) return;
  Stopping& stopping = surely([&]() -> Stopping& { return Stopping::of(*parts.front().loop); });
  if (begun) stopping.end();
  if (kept) stopping.forget();
}

// --- the functions of Stop -----------------------------------------------------------------------

Stop::Stop(ae::EventLoop& loop, Settings settings)
    : only_(std::make_unique<ae::LoopList>(std::vector<ae::EventLoop*>{&loop})),
      loops_(*only_),
      core_(std::make_shared<Core>(*only_, std::move(settings), [&loop] { loop.stop(); })) {
  core_->watch([&] { core_->start(loop); });
}

Stop::Stop(ae::LoopGroup& loops, Settings settings)
    : loops_(loops),
      core_(std::make_shared<Core>(loops, std::move(settings), [&loops] { loops.stop(); })) {
  core_->watch([&] {
    loops.on_each([this](ae::EventLoop& loop, std::size_t index) {
      if (index == 0) core_->start(loop);
    });
  });
}

Stop::Stop(ae::EventLoop& control, ae::Loops& serving, Settings settings)
    : loops_(serving),
      core_(std::make_shared<Core>(serving, std::move(settings), [&control] { control.stop(); })) {
  core_->watch([&] { core_->start(control); });
}

Stop::~Stop() {
  const std::shared_ptr<Core> core = core_;
  const bool had_begun = core->phase.exchange(Phase::kEnded) != Phase::kServing;
  std::vector<ListenerPtr> listeners;
  {
    const std::lock_guard lock(core->mutex);
    listeners.swap(core->listeners);
  }
  if (only_ != nullptr) {
    // The listeners and the handlers belong to the loop's thread.
    core->leave_from_here([&] {
      listeners.clear();
      core->end_one(had_begun);
    });
    if (!core->made_here.inherited()) core->restore_signals();
    return;
  }
  listeners.clear();
  core->leave_from_here([] {});
  if (core->made_here.inherited()) return;
  if (had_begun) (void)core->on_parts([](Stopping& stopping) { stopping.end(); }, [] {});
  if (core->kept) {
    try {
      loops_.on_each([](ae::EventLoop& loop, std::size_t) { Stopping::of(loop).forget(); });
    } catch (const std::exception&) {
      // A loop has ended, and the handlers that keep() stored on it were destroyed with it.
    }
  }
  core->restore_signals();
}

void Stop::add(ListenerPtr listener) {
  const std::lock_guard lock(core_->mutex);
  if (core_->phase == Phase::kServing) core_->listeners.push_back(std::move(listener));
}

AcceptHandler Stop::keep(AcceptHandler handler) {
  if (only_ == nullptr)
    throw ae::LoopError(
        "Stop::keep(): a server on several loops keeps the function that makes each "
        "loop's accept handler, not one handler");
  return core_->keep(*core_->parts.front().loop, std::move(handler));
}

std::function<AcceptHandler(ae::EventLoop&, std::size_t)> Stop::keep(
    std::function<AcceptHandler(ae::EventLoop&, std::size_t)> make) {
  return [make = std::move(make), core = core_](ae::EventLoop& loop, std::size_t index) {
    return core->keep(loop, make(loop, index));
  };
}

void Stop::request() {
  (void)post_surely(core_->controller, [core = core_] { core->on_request(); });
}

Stop::Phase Stop::phase() const noexcept { return core_->phase; }

Stop::Left Stop::left() const noexcept {
  const std::lock_guard lock(core_->mutex);
  return core_->left;
}

}}  // namespace conn
