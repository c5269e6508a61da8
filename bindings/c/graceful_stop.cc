// SPDX-License-Identifier: BSD-3-Clause
// The C interface of conn::Stop.

#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <thread>

#include "c/internal.h"
#include "conn/error.h"
#include "conn/stop.h"

using namespace aeconn_c;

struct aeconn_graceful_stop {
  aeconn_graceful_stop(aeconn_loop* loop, aeconn_group* its_group) : group(its_group) {
    if (group == nullptr)
      one = std::make_unique<ae::LoopList>(std::vector<ae::EventLoop*>{&loop->loop});
  }
  aeconn_graceful_stop(const aeconn_graceful_stop&) = delete;
  aeconn_graceful_stop& operator=(const aeconn_graceful_stop&) = delete;
  ~aeconn_graceful_stop() {
    // While these wait, functions on other threads may still use `stop`, which reset() would make
    // null first.
    unwatch();
    delete stop.get();
    (void)stop.release();
  }
  void watch(aeconn_loop* loop, aeconn_loop_fn begins, void* context);
  void unwatch() noexcept;

  aeconn_group* const group;          // null: the server is on one loop
  std::unique_ptr<ae::LoopList> one;  // contains the one loop
  const ae::MadeHere made_here;
  const std::thread::id thread = std::this_thread::get_id();
  std::unique_ptr<conn::Stop> stop;
  // One hook for each serving loop, created and destroyed on that loop's thread.
  std::vector<std::unique_ptr<conn::StopHook>> hooks;
};

void aeconn_graceful_stop::watch(aeconn_loop* loop, aeconn_loop_fn begins, void* context) {
  const auto hook = [begins, context](ae::EventLoop& on, aeconn_loop* its) {
    return std::make_unique<conn::StopHook>(on, [=] { begins(context, its); });
  };
  if (group == nullptr) return hooks.push_back(hook(loop->loop, loop));
  hooks.resize(group->loops.size());
  group->all().on_each(
      [&](ae::EventLoop& on, std::size_t i) { hooks[i] = hook(on, group->loops[i]); });
}

void aeconn_graceful_stop::unwatch() noexcept {
  // Whether the hooks can be destroyed on this thread. In a child of fork() they must be: if the
  // loops had other threads, these exist only in the parent.
  const std::thread::id now = std::this_thread::get_id();
  const bool here =
      made_here.inherited() || (group == nullptr && (thread == now || one->thread(0) == now));
  for (bool done = hooks.empty() || here; !done;) {
    try {
      ae::Loops& serving = group == nullptr ? *one : group->all();
      done = true;
      serving.on_each([this](ae::EventLoop&, std::size_t i) { hooks[i].reset(); });
    } catch (const std::bad_alloc&) {
      done = false;
      std::this_thread::yield();
    } catch (const std::exception&) {
      // A loop has ended, so its hook is not called any more.
    }
  }
  hooks.clear();
}

namespace {

conn::Stop::Settings settings_of(int64_t most, const aeconn_stop_settings& its,
                                 aeconn_loop* control) {
  conn::Stop::Settings settings;
  settings.limit = limit(most);
  if (its.signals != nullptr) {
    settings.signals.clear();
    sigset_t all;
    sigemptyset(&all);
    for (const int* each = its.signals; *each != 0; ++each) {
      if (sigaddset(&all, *each) != 0)
        throw conn::Error("signal " + std::to_string(*each) +
                          " does not exist: the list of signals ends with 0");
      settings.signals.push_back(*each);
    }
  }
  if (its.ends != nullptr)
    settings.ends = [ends = its.ends, context = its.context, control] { ends(context, control); };
  return settings;
}

}  // namespace

extern "C" {

aeconn_graceful_stop* aeconn_graceful_stop_new(aeconn_loop* loop, aeconn_group* group, int64_t most,
                                               const aeconn_stop_settings* settings) {
  if (loop == nullptr && group == nullptr) return no_handle<aeconn_graceful_stop*>();
  if (loop == nullptr && !group->threads) {
    failed(EINVAL, "a stop of the program's own workers needs a loop beside them to control it");
    return nullptr;
  }
  if (loop != nullptr && aeconn_group_index(group, loop) != static_cast<std::size_t>(-1)) {
    failed(EINVAL, "the loop that controls a stop must be none of the group that it stops");
    return nullptr;
  }
  return guarded([&] {
    const aeconn_stop_settings its = settings == nullptr ? aeconn_stop_settings{} : *settings;
    auto all = settings_of(most, its, loop != nullptr ? loop : group->loops.front());
    auto made = std::make_unique<aeconn_graceful_stop>(loop, group);
    if (group == nullptr)
      made->stop = std::make_unique<conn::Stop>(loop->loop, std::move(all));
    else if (loop == nullptr)
      made->stop = std::make_unique<conn::Stop>(*group->threads, std::move(all));
    else
      made->stop = std::make_unique<conn::Stop>(loop->loop, group->all(), std::move(all));
    if (its.begins != nullptr) made->watch(loop, its.begins, its.context);
    return made.release();
  });
}

void aeconn_graceful_stop_free(aeconn_graceful_stop* stop) {
  const NoCancel held;
  if (stop == nullptr || (stop->group != nullptr && on_its_thread(*stop->group))) return;
  delete stop;
}

int aeconn_graceful_stop_add(aeconn_graceful_stop* stop, aeconn_listener* listener) {
  if (stop == nullptr || listener == nullptr) return no_handle();
  return guarded([&] {
    const std::unique_ptr<aeconn_listener> taken(listener);
    stop->stop->add(std::move(taken->listener));
    return 0;
  });
}

void aeconn_graceful_stop_request(aeconn_graceful_stop* stop) {
  const NoCancel held;
  if (stop != nullptr) stop->stop->request();
}

aeconn_stop_phase aeconn_graceful_stop_get_phase(const aeconn_graceful_stop* stop) {
  if (stop == nullptr) return AECONN_SERVING;
  return static_cast<aeconn_stop_phase>(stop->stop->phase());
}

int aeconn_graceful_stop_status(const aeconn_graceful_stop* stop, uint64_t* connections,
                                uint64_t* bytes) {
  if (stop == nullptr) return no_handle();
  const conn::Stop::Left left = stop->stop->left();
  if (connections != nullptr) *connections = left.connections;
  if (bytes != nullptr) *bytes = left.bytes;
  return stop->stop->status();
}
}  // extern "C"
