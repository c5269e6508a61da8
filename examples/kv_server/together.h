// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the servers of several loops share. Each loop has its own Server with sessions, statistics
// and a copy of the configuration, which requests of other loops do not touch. Loops meet at a
// shard's lock, when a connection begins or ends, and when a command asks all of them.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server_state.h"
#include "shards.h"

namespace kv {

class Together {
 public:
  /// `loop_count`: from 1 to kMostLoops.
  Together(Config its_config, std::size_t loop_count, Server::Clock its_clock = nullptr,
           std::size_t databases = 16);
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;
  ~Together();
  static constexpr std::size_t kMostLoops = 256;

  // Must not change once the loops serve.
  /// Runs a function on a loop's thread; returns false if that loop has ended. Empty: all loops are
  /// on one thread, and functions run at once.
  std::function<bool(std::size_t loop, std::function<void()>)> post;
  std::function<void(bool now)> request_shutdown;
  std::function<void(std::string_view)> log;  ///< any thread

  Shards shards;
  std::size_t loops() const noexcept { return parts_.size(); }
  std::size_t database_count() const noexcept { return databases_; }
  Server::Clock clock() const noexcept { return clock_; }
  std::int64_t started_us() const noexcept { return started_us_; }

  // --- a loop's Server ---------------------------------------------------------------------------
  void join(Server& server);
  void leave(const Server& server) noexcept;
  /// Runs `fn` on a loop's thread with its Server, or null if that has left. Returns false if `fn`
  /// will not run.
  bool to(std::size_t loop, std::function<void(Server*)> fn);

  /// Asks every loop (this one at once), and runs `then` on this loop once all have answered. A
  /// loop that has ended, or has no memory for an answer, gives an empty answer. Nothing blocks
  /// meanwhile, so `then` may rely on `here` only: sessions may have ended.
  template <class Answer>
  void ask(Server& here, std::function<Answer(Server&)> question,
           std::function<void(std::vector<Answer>&)> then);

  // --- configuration -----------------------------------------------------------------------------
  std::mutex config_mutex;
  Config config;  ///< the authoritative one, guarded by the mutex; each Server has a copy

  // --- connections -------------------------------------------------------------------------------
  std::uint64_t next_session_id() noexcept { return ++last_session_id_; }
  /// Returns false if there are `most` clients already; otherwise leave_client() must follow.
  bool enter_client(std::int64_t most) noexcept;
  void leave_client() noexcept { --clients_; }
  /// As Server::log_refused(). Any thread.
  void log_refused(std::string_view why);
  void sum_up_refused();

  // --- limits ------------------------------------------------------------------------------------
  // Each loop publishes its share of the memory only after it has changed by more than kGrain.
  static constexpr std::int64_t kGrain = 64 << 10;
  void publish(const Server& here, bool exactly) noexcept;
  /// The bytes of the data, of clients' buffers and of left-behind values: this loop's current ones
  /// and those that the others have published.
  std::size_t used_memory(const Server& here) const noexcept;
  /// Applies maxmemory-clients: the loop whose clients hold the most closes its largest clients.
  void limit_clients_memory(Server& here);
  /// Store::maintain() for the shards that this loop maintains.
  bool maintain(Server& here, std::int64_t now_ms, std::size_t budget);

 private:
  void send_back(std::size_t loop, const std::function<void(Server*)>& fn) noexcept;

  struct alignas(64) Part {
    Server* server = nullptr;                       ///< used on its thread
    std::atomic<std::int64_t> data{0}, buffers{0};  // `data` includes Server::left_behind()
    std::atomic<bool> told{false};                  ///< asked to apply maxmemory-clients
  };

  Server::Clock clock_;
  const std::int64_t started_us_;
  const std::size_t databases_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::atomic<std::uint64_t> last_session_id_{0};
  std::atomic<std::int64_t> clients_{0};
  service::LimitedLog refusals_{"refused"};
};

template <class Answer>
void Together::ask(Server& here, std::function<Answer(Server&)> question,
                   std::function<void(std::vector<Answer>&)> then) {
  struct Asked {  // used on this loop's thread
    std::vector<Answer> answers;
    std::size_t missing;
    std::function<void(std::vector<Answer>&)> then;
  };
  const std::size_t self = here.loop;
  auto asked = std::make_shared<Asked>();
  asked->answers.resize(loops());
  asked->missing = loops();
  asked->then = std::move(then);
  const auto arrived = [](Asked& all) {
    if (--all.missing == 0) all.then(all.answers);
  };
  asked->answers[self] = question(here);
  for (std::size_t i = 0; i < loops(); ++i) {
    if (i == self) continue;
    const auto work = [this, self, i, question, asked, arrived](Server* there) {
      Answer& answer = asked->answers[i];  // used on that loop only until it is sent back
      try {
        if (there != nullptr) answer = question(*there);
      } catch (const std::bad_alloc&) {
        answer = Answer();
      }
      send_back(self, [asked, arrived](Server* back) {
        if (back != nullptr) arrived(*asked);
      });
    };
    try {
      if (!to(i, work)) --asked->missing;
    } catch (const std::bad_alloc&) {
      --asked->missing;
    }
  }
  arrived(*asked);
}

}  // namespace kv
