// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A simulated machine room: RDMA devices, the network between them, rdma_cm and the clock, in one
// process and on one thread. This program is linked with tests/simulation/*.cc instead of
// libibverbs and librdmacm, so what runs above is the library as it is shipped.
//
//   World world({.seed = 7});
//   Device& near = world.add_device("sim0", "10.0.0.1");
//   Device& far = world.add_device("sim1", "10.0.0.2");
//
// While a World lives, clock_gettime(), epoll_wait(), epoll_pwait2(), ppoll() and getifaddrs() are
// the simulation's: time passes only where a program would sleep, and a little with every look at
// the clock. Without one they are the system's, and the machine has no RDMA. The same seed and the
// same calls give the same run.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/simulation/choices.h"
#include "tests/simulation/costs.h"
#include "tests/simulation/profile.h"

namespace simulation {

using Nanoseconds = std::chrono::nanoseconds;
using namespace std::chrono_literals;

struct Device;
struct QueuePair;
struct Region;
struct Window;
struct Queue;
struct CmId;

/// How the network behaves. Messages of one queue pair keep their order, as a reliable connection
/// promises; everything else may overtake.
struct Weather {
  Nanoseconds least_delay = 1us, most_delay = 20us;        ///< of data
  Nanoseconds least_cm_delay = 20us, most_cm_delay = 2ms;  ///< of rdma_cm's messages
  double bytes_per_second = 0;  ///< that a device can send; 0: any number
  bool in_step = false;       ///< what leaves right behind another message arrives right behind it
  double slow_message = 0;    ///< part of the messages that were lost and sent again: 67 ms late
  double stale_requests = 0;  ///< part of the connection requests that meet a number's former owner
};

struct Config {
  std::uint64_t seed = 1;
  std::span<const std::uint8_t> choices = {};  ///< used up before the seed counts
  Weather weather = {};
  double failing_calls = 0;        ///< part of the calls that fail
  Nanoseconds system_call = 0ns;   ///< what each takes, beyond those that post, poll and arm
  Nanoseconds wake_latency = 0ns;  ///< from what wakes a sleeping loop until it runs
  Nanoseconds wake_cpu = 0ns;      ///< what of that is the loop's own CPU; of Processors
  unsigned processors = 4;         ///< that threads may use
  double short_transfers = 0;      ///< part of the socket calls that do less than asked
  // Instead of what the profiles of the devices say.
  std::optional<int> max_cqe = {}, max_qp_wr = {}, max_srq_wr = {};
  std::optional<std::uint32_t> max_inline = {};
  std::optional<bool> memory_windows = {}, shared_receives = {};
  /// Ports have InfiniBand's link layer, and rdma_init_qp_attr() is that of an old kernel.
  bool infiniband = false;
  bool strangers = false;  ///< one end is not ours: rules that it breaks are no violations
};

/// Threads that share the time, one of them running; null: there is one thread.
class Pace {
 public:
  Pace() = default;
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;
  virtual ~Pace() = default;
  /// Time has passed: it may be another's turn.
  virtual void passing() noexcept = 0;
  /// Until the epoll descriptor has something, or this moment.
  virtual void sleep(int epoll, Nanoseconds until) noexcept = 0;
};

class World {
 public:
  explicit World(Config config = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  /// The one that lives, or null.
  static World* current() noexcept { return current_; }

  // --- the machines ---
  Device& add_device(const std::string& name, const std::string& address,
                     const Profile& profile = chosen_profile());
  /// As `rdma link delete`: every id on it is told, its peers see a disconnect, it answers no more.
  void remove_device(Device& device);
  void set_link(Device& device, bool up);
  /// A port beyond the first, which nobody uses, and its event.
  void set_other_port(Device& device, int port, bool up);
  /// As `ip addr del`, or back again.
  void set_address(Device& device, bool present);
  /// As when a bond fails over: RDMA_CM_EVENT_ADDR_CHANGE for every id on the device.
  void move_address(Device& device);
  /// Nothing gets through between the two any more, or everything again.
  void set_path(const Device& one, const Device& other, bool open);
  /// Asynchronous event number `type` (ibv_event_type) on every open handle of the device.
  void raise(Device& device, int type);
  Device* find_device(const std::string& name) noexcept;
  bool path_open(const Device& from, const Device& to) const;

  // --- time ---
  static constexpr Nanoseconds kNever = Nanoseconds::max();
  Nanoseconds now() const noexcept { return now_; }
  /// `what` happens after this long.
  void after(Nanoseconds delay, std::function<void()> what);
  /// Does what is due.
  void run_due();
  /// Goes on to the next thing that happens, or to `limit`. False: nothing happens before it.
  bool advance(Nanoseconds limit);
  /// At the end: ids that loops left to the process go as soon as the kernel lets them.
  void let_orphans_go();
  Nanoseconds look_at_clock() noexcept {
    ++clock_looks_;
    now_ += 50ns;
    if (pace != nullptr) pace->passing();
    return now_;
  }
  std::uint64_t clock_looks() const noexcept { return clock_looks_; }

  /// On another processor it is another time, a little earlier or later. What happens after
  /// `horizon` waits, since somebody is still before it.
  void set_clock(Nanoseconds now, Nanoseconds horizon) noexcept {
    now_ = now;
    horizon_ = horizon;
  }
  /// When something happens next; kNever: nothing will.
  Nanoseconds next_happening() const noexcept {
    return happenings_.empty() ? kNever : happenings_.top().when;
  }
  /// The program computes.
  void spend(Nanoseconds span) noexcept { now_ += span; }
  Pace* pace = nullptr;
  /// Several loops take turns: a loop that would sleep only says until when it would.
  bool stepping = false;
  Nanoseconds wish = kNever;  ///< the last that was said; now, if there was something to do

  // --- faults ---
  Config config;
  /// 0, or the errno this call is to fail with. Every call of the simulated libraries asks.
  int failing(const char* call, int usual_error);
  /// A call that cannot fail, but takes its time.
  void spend_call() noexcept { now_ += config.system_call; }
  /// From now on the Nth call fails, with as many as make `count` (1: the next); 0: none.
  void fail_call(std::uint64_t number, std::uint64_t count = 1) noexcept {
    calls_ = 0;
    fail_at_ = number;
    fail_until_ = number + count;
  }
  std::uint64_t calls() const noexcept { return calls_; }
  std::uint64_t failed_calls() const noexcept { return failed_calls_; }
  const std::string& last_failed() const noexcept { return last_failed_; }

  // --- what is watched ---
  /// What exists now: {"qp", 2}, {"mr", 5}, ...; kinds of which none is left are not there.
  std::map<std::string, int> objects() const;
  void count(const char* kind, int change) { objects_[kind] += change; }
  /// Something no correct user of the libraries does: overran a queue, destroyed in wrong order.
  void violation(std::string what) { violations_.push_back(std::move(what)); }
  const std::vector<std::string>& violations() const noexcept { return violations_; }
  /// For who provoked them.
  std::vector<std::string> take_violations() { return std::exchange(violations_, {}); }
  std::uint64_t receives_missing = 0;  ///< messages that found no receive posted
  std::uint64_t messages = 0;          ///< delivered
  Nanoseconds slept{};                 ///< time of this thread that was no CPU
  std::uint64_t waits = 0;             ///< calls of epoll_wait(), epoll_pwait2() and ppoll()
  std::uint64_t looks_in_vain = 0;     ///< calls of ibv_get_cq_event() that found none
  /// What the device has been asked for so far; subtract an earlier answer.
  Costs costs(const Device& device) const;

  double chance() { return std::uniform_real_distribution<>(0, 1)(random); }
  Nanoseconds between(Nanoseconds least, Nanoseconds most) {
    return Nanoseconds(
        std::uniform_int_distribution<std::int64_t>(least.count(), most.count())(random));
  }
  Nanoseconds data_delay();
  Nanoseconds cm_delay() {
    return between(config.weather.least_cm_delay, config.weather.most_cm_delay);
  }
  Choices random;

  // --- for the simulated libraries ---
  std::vector<std::unique_ptr<Device>> devices;
  std::map<std::uint32_t, QueuePair*> queue_pairs;
  std::map<std::uint32_t, Region*> regions;  // by key, local and remote
  std::map<std::uint32_t, Window*> windows;  // by the key they are bound with
  std::map<std::uint64_t, CmId*> ids;
  std::vector<Queue*> queues;
  std::multimap<std::uint16_t, CmId*> listeners;  // by port, in network order
  std::uint64_t next_serial = 1;
  std::uint32_t next_key = 0x1000;
  std::uint64_t next_id = 1;
  std::uint16_t next_port = 40000;

 private:
  struct Happening {
    Nanoseconds when;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const Happening& other) const noexcept {
      return std::tie(other.when, other.order) < std::tie(when, order);
    }
  };
  static World* current_;
  Nanoseconds now_ = 1000s, horizon_ = kNever;
  std::priority_queue<Happening> happenings_;
  std::uint64_t order_ = 0;
  bool running_ = false;
  std::uint64_t calls_ = 0, fail_at_ = 0, fail_until_ = 0, failed_calls_ = 0;
  std::uint64_t clock_looks_ = 0;
  std::string last_failed_;
  std::map<std::string, int> objects_;
  std::vector<std::string> violations_;
  std::vector<std::pair<const Device*, const Device*>> closed_paths_;
};

}  // namespace simulation
