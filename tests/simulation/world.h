// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Simulates RDMA devices, the network between them, rdma_cm and the clock, in one process and on
// one thread. The program is linked with tests/simulation/*.cc instead of libibverbs and librdmacm;
// the code above is the library as shipped.
//
//   World world({.seed = 7});
//   Device& near = world.add_device("sim0", "10.0.0.1");
//   Device& far = world.add_device("sim1", "10.0.0.2");
//
// While a World exists, clock_gettime(), epoll_wait(), epoll_pwait2(), ppoll() and getifaddrs() are
// simulated: time passes only where a program would sleep, and a little with each reading of the
// clock. Without one they are the system's, and the machine has no RDMA. The same seed and the same
// calls give the same run.

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
/// guarantees; all others may overtake each other.
struct Weather {
  Nanoseconds least_delay = 1us, most_delay = 20us;        ///< of data
  Nanoseconds least_cm_delay = 20us, most_cm_delay = 2ms;  ///< of rdma_cm's messages
  double bytes_per_second = 0;                             ///< bandwidth of a device; 0: unlimited
  bool in_step = false;       ///< a message sent right behind another arrives right behind it
  double slow_message = 0;    ///< fraction of messages lost and sent again: 67 ms late
  double stale_requests = 0;  ///< fraction of requests answered as stale (number reused too soon)
};

struct Config {
  std::uint64_t seed = 1;
  std::span<const std::uint8_t> choices = {};  ///< used up before the seed counts
  Weather weather = {};
  double failing_calls = 0;        ///< fraction of calls that fail
  Nanoseconds system_call = 0ns;   ///< duration of each call, except for post, poll and arm
  Nanoseconds wake_latency = 0ns;  ///< from the wake-up of a sleeping loop until it runs
  Nanoseconds wake_cpu = 0ns;      ///< the loop's own CPU time of that; for Processors
  unsigned processors = 4;         ///< number of processors that threads may use
  double short_transfers = 0;      ///< fraction of socket calls that transfer less than asked
  // These override the profiles of the devices.
  std::optional<int> max_cqe = {}, max_qp_wr = {}, max_srq_wr = {};
  std::optional<std::uint32_t> max_inline = {};
  std::optional<bool> memory_windows = {}, shared_receives = {};
  /// Ports have InfiniBand's link layer, and rdma_init_qp_attr() behaves like an old kernel's.
  bool infiniband = false;
  bool strangers = false;  ///< one end is not aeconn: rules that it breaks are no violations
};

/// Threads that share the simulated time, of which one runs at a time; null: a single thread.
class Pace {
 public:
  Pace() = default;
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;
  virtual ~Pace() = default;
  /// Time has passed: another thread may have to run now.
  virtual void passing() noexcept = 0;
  /// Sleeps until the epoll descriptor is ready or this time has come.
  virtual void sleep(int epoll, Nanoseconds until) noexcept = 0;
};

class World {
 public:
  explicit World(Config config = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  /// The existing instance, or null.
  static World* current() noexcept { return current_; }

  // --- the machines ---
  Device& add_device(const std::string& name, const std::string& address,
                     const Profile& profile = chosen_profile());
  /// As `rdma link delete`: each id on the device gets an event, peers see a disconnect, and it no
  /// longer answers.
  void remove_device(Device& device);
  void set_link(Device& device, bool up);
  /// Changes the link of an unused port beyond the first, and raises its event.
  void set_other_port(Device& device, int port, bool up);
  /// As `ip addr del`, or `ip addr add`.
  void set_address(Device& device, bool present);
  /// As when a bond fails over: RDMA_CM_EVENT_ADDR_CHANGE for every id on the device.
  void move_address(Device& device);
  /// Closes or opens the path between both devices; nothing gets through a closed path.
  void set_path(const Device& one, const Device& other, bool open);
  /// Asynchronous event number `type` (ibv_event_type) on every open handle of the device.
  void raise(Device& device, int type);
  Device* find_device(const std::string& name) noexcept;
  bool path_open(const Device& from, const Device& to) const;

  // --- time ---
  static constexpr Nanoseconds kNever = Nanoseconds::max();
  Nanoseconds now() const noexcept { return now_; }
  /// Runs `what` after `delay`.
  void after(Nanoseconds delay, std::function<void()> what);
  /// Runs everything that is due.
  void run_due();
  /// Moves time to the next event or to `limit`. False: no event is due before it.
  bool advance(Nanoseconds limit);
  /// At the end: destroys ids that loops left to the process, as soon as the kernel allows it.
  void let_orphans_go();
  Nanoseconds look_at_clock() noexcept {
    ++clock_looks_;
    now_ += 50ns;
    if (pace != nullptr) pace->passing();
    return now_;
  }
  std::uint64_t clock_looks() const noexcept { return clock_looks_; }

  /// Another processor has another time, a little earlier or later. Events after `horizon` wait,
  /// since another processor is still before it.
  void set_clock(Nanoseconds now, Nanoseconds horizon) noexcept {
    now_ = now;
    horizon_ = horizon;
  }
  /// When the next event is due; kNever: there is none.
  Nanoseconds next_happening() const noexcept {
    return happenings_.empty() ? kNever : happenings_.top().when;
  }
  /// The program computes for that long.
  void spend(Nanoseconds span) noexcept { now_ += span; }
  Pace* pace = nullptr;
  /// Several loops take turns: instead of sleeping, a loop only records until when it would sleep.
  bool stepping = false;
  Nanoseconds wish = kNever;  ///< the last recorded time; now, if there was something to do

  // --- faults ---
  Config config;
  /// 0, or the errno that this call must fail with. All simulated library calls ask.
  int failing(const char* call, int usual_error);
  /// A call that cannot fail but takes time.
  void spend_call() noexcept { now_ += config.system_call; }
  /// From now on the Nth call fails (1: the next), and those after it until `count` have failed. 0:
  /// none fails.
  void fail_call(std::uint64_t number, std::uint64_t count = 1) noexcept {
    calls_ = 0;
    fail_at_ = number;
    fail_until_ = number + count;
  }
  std::uint64_t calls() const noexcept { return calls_; }
  std::uint64_t failed_calls() const noexcept { return failed_calls_; }
  const std::string& last_failed() const noexcept { return last_failed_; }

  // --- what is observed ---
  /// Existing objects: {"qp", 2}, {"mr", 5}, ...; kinds without objects are left out.
  std::map<std::string, int> objects() const;
  void count(const char* kind, int change) { objects_[kind] += change; }
  /// Records something that a correct user of the libraries never does, such as overrunning a queue
  /// or destroying in the wrong order.
  void violation(std::string what) { violations_.push_back(std::move(what)); }
  const std::vector<std::string>& violations() const noexcept { return violations_; }
  /// For tests that provoke violations.
  std::vector<std::string> take_violations() { return std::exchange(violations_, {}); }
  std::uint64_t receives_missing = 0;  ///< messages that found no receive posted
  std::uint64_t messages = 0;          ///< delivered
  Nanoseconds slept{};                 ///< time of this thread that was not CPU time
  std::uint64_t waits = 0;             ///< calls of epoll_wait(), epoll_pwait2() and ppoll()
  std::uint64_t looks_in_vain = 0;     ///< calls of ibv_get_cq_event() that found no event
  /// What the device has been asked for so far; subtract an earlier result for a difference.
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
