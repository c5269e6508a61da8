// SPDX-License-Identifier: BSD-3-Clause
#include "ae/loop_group.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "ae/core/fork.h"
#include "ae/core/signals_off.h"
#include "ae/libev_loop.h"

namespace ae { inline namespace AECONN_ABI {
namespace {

thread_local const Loops* group_of_this_thread = nullptr;

/// Returns the processors that this process may use, in ascending order. cpu_set_t has room for
/// only 1024, so the set is enlarged until the kernel accepts its size.
std::vector<int> allowed_processors() {
  for (int size = CPU_SETSIZE;; size *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(static_cast<std::size_t>(size)), [](cpu_set_t* each) { CPU_FREE(each); });
    if (!set) throw std::bad_alloc();
    const std::size_t bytes = CPU_ALLOC_SIZE(size);
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL && size < (1 << 20)) continue;
      throw std::system_error(errno, std::generic_category(), "sched_getaffinity");
    }
    std::vector<int> all;
    for (int i = 0; i < size; ++i)
      if (CPU_ISSET_S(static_cast<std::size_t>(i), bytes, set.get())) all.push_back(i);
    return all;
  }
}

void pin(pthread_t thread, int processor) {
  const int size = std::max(processor + 1, CPU_SETSIZE);
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
      CPU_ALLOC(static_cast<std::size_t>(size)), [](cpu_set_t* each) { CPU_FREE(each); });
  if (!set) throw std::bad_alloc();
  const std::size_t bytes = CPU_ALLOC_SIZE(size);
  CPU_ZERO_S(bytes, set.get());
  CPU_SET_S(static_cast<std::size_t>(processor), bytes, set.get());
  // pthread_setaffinity_np() fails if the processor has gone offline or a cgroup has removed it.
  // The thread then keeps its previous affinity.
  (void)pthread_setaffinity_np(thread, bytes, set.get());
}

}  // namespace

/// One loop of the group, together with its thread.
class LoopGroup::Member {
 public:
  Member(const LoopGroup& group, Core& core, std::size_t index)
      : group_(group), core_(core), index_(index) {}
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  /// Pins the loop's thread to the processor with this number. The caller must hold the mutex
  /// `placing`.
  void pin_to(int processor) {
    if (!ended_) pin(thread_.native_handle(), processor);
  }

  Poster poster;  // the loop's Poster; set once the loop has been created
  // The loop; null until it has been created. Used only on the loop's own thread; other threads
  // only pass the pointer to functions that they post to that thread.
  EventLoop* loop = nullptr;
  std::thread::id id;  // the loop's thread; set once the loop has been created

 private:
  void run() noexcept;
  const LoopGroup& group_;
  Core& core_;
  const std::size_t index_;
  // True if the thread has left run(): it may then have been joined, and must not be pinned.
  // Guarded by the mutex `placing`.
  bool ended_ = false;
  std::thread thread_;
};

struct LoopGroup::Core {
  explicit Core(Config its_config) : config(std::move(its_config)) {}
  void ready() {
    const std::lock_guard lock(mutex);
    ++settled;
    changed.notify_all();
  }
  /// Records the exception that a loop's constructor or a handler threw, which means that this loop
  /// could not be created or has ended.
  void failed(std::exception_ptr why, bool before_ready) {
    {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::move(why);
      if (before_ready) ++settled;
      changed.notify_all();
      // While the group is being constructed, only its constructor stops the other loops.
      if (!constructed) return;
    }
    stop_all();
  }
  void stop_all() {
    for (const auto& member : members) stop_one(*member);
  }
  // Posts the call of stop() to the loop's thread. If there is no memory for the post, the only
  // option is to retry.
  static void stop_one(const Member& member) noexcept {
    for (;;) {
      try {
        (void)member.poster.post([loop = member.loop] { loop->stop(); });
        return;
      } catch (const std::bad_alloc&) {
        std::this_thread::yield();
      }
    }
  }
  void join_all() {
    const std::lock_guard lock(joining);
    for (const auto& member : members) member->join();
  }
  void place();
  void refuse_child(const char* what) const {
    if (made_here.inherited())
      throw LoopError(std::string(what) + " in a child of fork(): the threads are its parent's");
  }
  void refuse_own_thread(const LoopGroup& group, const char* what) const {
    refuse_child(what);
    if (group_of_this_thread == &group)
      throw LoopError(std::string(what) + " on a thread of the group would wait for itself");
  }

  const MadeHere made_here;
  const Config config;
  std::vector<std::unique_ptr<Member>> members;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t settled = 0;  // number of loops that run or whose creation has failed
  bool constructed = false;
  std::exception_ptr failure;  // the first exception that ended any loop; null: none
  // Locked while the threads are being joined, because several threads may call join_all().
  std::mutex joining;
  std::mutex placing;
  std::vector<int> allowed;
  std::map<const void*, std::vector<int>> near;
};

void LoopGroup::Member::run() noexcept {
  group_of_this_thread = &group_;
  bool was_ready = false;
  try {
    // The kernel limits thread names to 15 characters. The name is cut, so that the index fits.
    const std::string number = "-" + std::to_string(index_);
    const std::string name =
        core_.config.name.substr(0, 15 - std::min<std::size_t>(number.size(), 15));
    (void)pthread_setname_np(pthread_self(), (name + number).c_str());
    const std::unique_ptr<EventLoop> made =
        core_.config.make ? core_.config.make(index_) : std::make_unique<LibevLoop>();
    if (!made) throw LoopError("make() gave no loop");
    loop = made.get();
    poster = made->poster();
    id = std::this_thread::get_id();
    core_.ready();
    was_ready = true;
    made->run();
  } catch (...) {
    core_.failed(std::current_exception(), !was_ready);
  }
  const std::lock_guard lock(core_.placing);
  ended_ = true;
}

// Assigns the processors to the threads in turn. If there are enough processors, each thread gets
// one that no other thread gets.
void LoopGroup::Core::place() {
  const std::lock_guard lock(placing);
  std::vector<int> processors;
  const bool one_device =
      !near.empty() && std::all_of(near.begin(), near.end(), [&](const auto& each) {
        return each.second == near.begin()->second;
      });
  if (one_device)
    std::set_intersection(allowed.begin(), allowed.end(), near.begin()->second.begin(),
                          near.begin()->second.end(), std::back_inserter(processors));
  if (processors.empty()) processors = allowed;
  for (std::size_t i = 0; i < members.size(); ++i)
    members[i]->pin_to(processors[i % processors.size()]);
}

LoopGroup::LoopGroup(Config config) : core_(std::make_unique<Core>(std::move(config))) {
  Core& core = *core_;
  core.allowed = allowed_processors();
  const std::size_t count = core.config.loops != 0 ? core.config.loops : core.allowed.size();
  std::exception_ptr why;
  std::size_t started = 0;
  try {
    for (std::size_t i = 0; i < count; ++i)
      core.members.push_back(std::make_unique<Member>(*this, core, i));
    const SignalsOff off;
    for (; started < count; ++started) core.members[started]->start();
  } catch (...) {
    why = std::current_exception();
  }
  {
    std::unique_lock lock(core.mutex);
    core.changed.wait(lock, [&] { return core.settled == started; });
    if (!why) why = std::exchange(core.failure, nullptr);
    core.constructed = !why;
  }
  try {
    if (!why && core.config.pin) core.place();
  } catch (...) {
    why = std::current_exception();
  }
  if (!why) return;
  core.stop_all();
  core.join_all();
  std::rethrow_exception(why);
}

LoopGroup::~LoopGroup() {
  // In a child of fork() the group cannot be stopped, because its threads and their locks belong to
  // the parent. The child leaks the group's state instead.
  if (core_->made_here.inherited()) {
    (void)core_.release();
    return;
  }
  core_->stop_all();
  core_->join_all();
}

std::size_t LoopGroup::size() const noexcept { return core_->members.size(); }
Poster LoopGroup::poster(std::size_t index) const { return core_->members[index]->poster; }
EventLoop* LoopGroup::loop(std::size_t index) const noexcept { return core_->members[index]->loop; }

void LoopGroup::on_each(const std::function<void(EventLoop&, std::size_t)>& fn) {
  core_->refuse_own_thread(*this, "on_each()");
  run_on_each(
      size(), [this](std::size_t i) { return poster(i); },
      [this](std::size_t i) -> EventLoop& { return *loop(i); }, fn);
}

std::thread::id LoopGroup::thread(std::size_t index) const {
  core_->refuse_child("thread()");
  return core_->members[index]->id;
}

void LoopGroup::set_near(const void* whose, const std::vector<int>& processors) {
  if (core_->made_here.inherited()) return;
  {
    const std::lock_guard lock(core_->placing);
    if (processors.empty())
      core_->near.erase(whose);
    else
      core_->near[whose] = processors;
  }
  if (core_->config.pin) core_->place();
}

void LoopGroup::stop() {
  if (!core_->made_here.inherited()) core_->stop_all();
}

void LoopGroup::run() {
  core_->refuse_own_thread(*this, "run()");
  core_->join_all();
  std::exception_ptr why;
  {
    const std::lock_guard lock(core_->mutex);
    why = std::exchange(core_->failure, nullptr);
  }
  if (why) std::rethrow_exception(why);
}

}}  // namespace ae
