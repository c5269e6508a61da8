// SPDX-License-Identifier: BSD-3-Clause
// The C interface: groups of loops, Redial, metrics and fallbacks.

#include <dlfcn.h>
#include <sched.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "c/aeconn.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using namespace testing::c;
using testing::Contains;

namespace {

struct RedialEnd {
  void operator()(aeconn_redial* redial) const { aeconn_redial_free(redial); }
};
using Redial = std::unique_ptr<aeconn_redial, RedialEnd>;

/// Echoes, on any loop.
void echo(void*, aeconn_conn* conn) {
  std::array<char, 100> buffer;
  const ssize_t n = aeconn_read(conn, buffer.data(), buffer.size());
  if (n > 0)
    aeconn_write(conn, buffer.data(), static_cast<size_t>(n));
  else if (n == 0 || errno != EAGAIN)
    aeconn_close(conn);
}

void keep(void* to, const char* text, size_t size) {
  static_cast<std::string*>(to)->assign(text, size);
}
void add(void* to, const char* name, const char* value) {
  *static_cast<std::string*>(to) += std::string(name) + "=" + value + ";";
}

thread_local bool many_processors = false;  // for sched_getaffinity() on this thread

}  // namespace

/// With `many_processors`, as on a machine with 2048, three of which the thread may use. Weak:
/// another file of the tests may define it, too.
extern "C" __attribute__((weak)) int sched_getaffinity(pid_t thread, size_t size,
                                                       cpu_set_t* set) noexcept {
  using Function = int (*)(pid_t, size_t, cpu_set_t*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "sched_getaffinity"));
  if (!many_processors) return real(thread, size, set);
  if (size < CPU_ALLOC_SIZE(2048)) return errno = EINVAL, -1;
  CPU_ZERO_S(size, set);
  for (const std::size_t each : {0U, 1U, 1500U}) CPU_SET_S(each, size, set);
  return 0;
}

TEST_CASE("C: a loop for each processor, of more than a cpu_set_t has room for", "[c][group]") {
  many_processors = true;
  const Group group(aeconn_group_new(0, "many", 0));
  many_processors = false;
  INFO(aeconn_error());
  REQUIRE(group != nullptr);
  CHECK(aeconn_group_size(group.get()) == 3);
}

TEST_CASE("C: one port, several loops", "[c][group]") {
  const Group group(aeconn_group_new(3, "c-test", 0));
  INFO(aeconn_error());
  REQUIRE(group != nullptr);
  REQUIRE(aeconn_group_size(group.get()) == 3);
  struct Seen {
    std::atomic<int> accepted{0}, posted{0};
  } seen;
  Listener listener(aeconn_group_listen(
      group.get(), "tcp://127.0.0.1:0", AECONN_ROUND_ROBIN,
      [](void* self, aeconn_loop* loop, aeconn_conn* conn) {
        if (aeconn_dispatch(loop) >= 0) ++static_cast<Seen*>(self)->accepted;  // a nested iteration
        aeconn_on_readable(conn, echo, nullptr);
      },
      &seen));
  REQUIRE(listener != nullptr);
  const Loop mine(aeconn_loop_new());
  std::vector<Conn> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back(
        aeconn_connect_wait(mine.get(), aeconn_listener_url(listener.get(), 0), 60 * kSecond));
    REQUIRE(clients.back() != nullptr);
    std::array<char, 5> back;
    REQUIRE(aeconn_write_all(clients.back().get(), "hello", 5, 60 * kSecond) == 5);
    REQUIRE(aeconn_read_all(clients.back().get(), back.data(), 5, 60 * kSecond) == 5);
  }
  for (size_t i = 0; i < 3; ++i) {
    uint64_t open = 0, assigned = 0;
    REQUIRE(aeconn_listener_share(listener.get(), i, &open, &assigned) == 0);
    REQUIRE(open == 2);
    REQUIRE(assigned == 2);
    REQUIRE(aeconn_group_post(
                group.get(), i,
                [](void* self, aeconn_loop* loop) {
                  if (aeconn_run(loop) == -1 && errno == EDEADLK)
                    ++static_cast<Seen*>(self)->posted;
                  aeconn_loop_free(loop);  // no effect: the group owns the loop
                },
                &seen) == 0);
  }
  REQUIRE(seen.accepted == 6);
  std::string text;
  REQUIRE(aeconn_group_metrics(group.get(), keep, &text) == 0);
  REQUIRE_THAT(text, Contains("aeconn_connections_accepted_total{scheme=\"tcp\"} 6"));
  REQUIRE(aeconn_metrics(mine.get(), keep, &text) == 0);
  REQUIRE_THAT(text, Contains("# TYPE"));

  errno = 0;
  CHECK(aeconn_listener_share(listener.get(), 3, nullptr, nullptr) == -1);
  CHECK(aeconn_group_post(
            group.get(), 3, [](void*, aeconn_loop*) {}, nullptr) == -1);
  CHECK(errno == EINVAL);
  CHECK(aeconn_group_listen(
            group.get(), "tcp", AECONN_FEWEST, [](void*, aeconn_loop*, aeconn_conn*) {}, nullptr) ==
        nullptr);
  CHECK(aeconn_group_new(SIZE_MAX, nullptr, 0) == nullptr);
  // Calls from a loop of the group: those that would wait for themselves are refused, statistics
  // are answered.
  struct Inside {
    aeconn_group* group;
    std::atomic<int> refused{0};
  } inside{group.get()};
  REQUIRE(aeconn_group_post(
              group.get(), 0,
              [](void* self, aeconn_loop*) {
                auto* const its = static_cast<Inside*>(self);
                aeconn_group_free(its->group);
                std::string unused;
                its->refused += aeconn_group_wait(its->group) == -1;
                its->refused += aeconn_group_metrics(its->group, keep, &unused) == 0;
                ++its->refused;
              },
              &inside) == 0);
  const auto end = std::chrono::steady_clock::now() + testing::patience();
  while (seen.posted != 3 || inside.refused != 3) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::yield();
  }
  listener.reset();
  aeconn_group_stop(group.get());
  REQUIRE(aeconn_group_wait(group.get()) == 0);
  // A loop's end does not destroy connections: the program's handlers have to close them before.
  clients.clear();
  const auto all_closed = [&] {
    std::uint64_t open = 0, all = 0, assigned = 0;
    for (size_t i = 0; i < 3; ++i) {
      (void)aeconn_listener_share(listener.get(), i, &open, &assigned);
      all += open;
    }
    return all == 0;
  };
  const auto late = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!all_closed() && std::chrono::steady_clock::now() < late) std::this_thread::yield();
  REQUIRE(all_closed());
}

TEST_CASE("C: a handler uses its group while another thread frees that", "[c][group]") {
  struct Seen {
    aeconn_group* group = nullptr;
    std::atomic<bool> inside{false}, freeing{false};
    size_t index = 7;
    int posted = -1, asked = -1;
  } seen;
  seen.group = aeconn_group_new(2, "c-end", 0);
  REQUIRE(seen.group != nullptr);
  REQUIRE(aeconn_group_post(
              seen.group, 0,
              [](void* self, aeconn_loop* loop) {
                auto& its = *static_cast<Seen*>(self);
                its.inside = true;
                while (!its.freeing) std::this_thread::yield();
                // The other loop ends once aeconn_group_free() waits for the loops.
                while (aeconn_group_statistics(
                           its.group, 1, "tcp", [](void*, const char*, const char*) {}, nullptr) ==
                       0)
                  std::this_thread::yield();
                its.index = aeconn_group_index(its.group, loop);
                its.posted = aeconn_group_post(
                    its.group, 1, [](void*, aeconn_loop*) {}, nullptr);
                its.asked = aeconn_group_statistics(
                    its.group, 0, "tcp", [](void*, const char*, const char*) {}, nullptr);
                aeconn_group_stop(its.group);
              },
              &seen) == 0);
  while (!seen.inside) std::this_thread::yield();
  seen.freeing = true;
  aeconn_group_free(seen.group);
  CHECK(seen.index == 0);
  CHECK(seen.posted == 0);
  CHECK(seen.asked == 0);
}

TEST_CASE("C: at the end of its loop a thread of the group cannot free it", "[c][group]") {
  struct Seen {
    aeconn_group* group = nullptr;
    aeconn_graceful_stop* stop = nullptr;
    std::atomic<bool> inside{false}, stopped{false};
    bool last = false;
  } seen;
  seen.group = aeconn_group_new(1, "c-last", 0);
  REQUIRE(seen.group != nullptr);
  seen.stop = aeconn_graceful_stop_new(nullptr, seen.group, 0, nullptr);
  REQUIRE(seen.stop != nullptr);
  REQUIRE(aeconn_group_post(
              seen.group, 0,
              [](void* self, aeconn_loop*) {
                auto& its = *static_cast<Seen*>(self);
                its.inside = true;
                while (!its.stopped) std::this_thread::yield();
              },
              &seen) == 0);
  while (!seen.inside) std::this_thread::yield();
  // The first function runs in the last iteration, and posts the second one, which runs when the
  // loop is destroyed.
  aeconn_group_stop(seen.group);
  REQUIRE(aeconn_group_post(
              seen.group, 0,
              [](void* self, aeconn_loop*) {
                auto& its = *static_cast<Seen*>(self);
                (void)aeconn_group_post(
                    its.group, 0,
                    [](void* again, aeconn_loop*) {
                      auto& it = *static_cast<Seen*>(again);
                      aeconn_graceful_stop_free(it.stop);
                      aeconn_group_free(it.group);
                      it.last = true;
                    },
                    self);
              },
              &seen) == 0);
  seen.stopped = true;
  CHECK(aeconn_group_wait(seen.group) == 0);
  CHECK(seen.last);
  aeconn_graceful_stop_free(seen.stop);
  aeconn_group_free(seen.group);
}

TEST_CASE("C: a connection that comes back", "[c]") {
  const Loop loop(aeconn_loop_new());
  struct Place {
    aeconn_loop* loop = nullptr;
    Listener listener = nullptr;
    std::vector<Conn> served;
    Redial redial;
    int ups = 0, downs = 0, changes = 0;
    bool free_in_down = false;
    std::string read, why;
    uint64_t unconfirmed = 0;
    int error = 0;
    void listen(const std::string& url) {
      listener.reset(aeconn_listen(
          loop, url.c_str(),
          [](void* self, aeconn_conn* conn) {
            static_cast<Place*>(self)->served.emplace_back(conn);
            aeconn_on_readable(
                conn,
                [](void*, aeconn_conn* its) {
                  std::array<char, 10> buffer;
                  const ssize_t n = aeconn_read(its, buffer.data(), buffer.size());
                  if (n > 0) aeconn_write(its, buffer.data(), static_cast<size_t>(n));
                  if (n == 0) aeconn_on_readable(its, nullptr, nullptr);
                },
                nullptr);
          },
          this));
      INFO(aeconn_error());
      REQUIRE(listener != nullptr);
    }
  } place{};
  place.loop = loop.get();
  place.listen("tcp://127.0.0.1:0");
  const std::string url = aeconn_listener_url(place.listener.get(), 0);
  aeconn_redial_handlers handlers{};
  handlers.up = [](void* self, aeconn_redial* redial, aeconn_conn* conn) {
    auto* const its = static_cast<Place*>(self);
    ++its->ups;
    REQUIRE(aeconn_redial_connection(redial) == conn);
    REQUIRE(aeconn_redial_get_phase(redial) == AECONN_REDIAL_UP);
    REQUIRE(aeconn_write(conn, "request", 7) == 7);
    REQUIRE(aeconn_redial_unconfirmed(redial) == 7);
    aeconn_redial_confirm(redial, 3);
  };
  handlers.down = [](void* self, aeconn_redial*, aeconn_conn*, const aeconn_redial_loss* loss) {
    auto* const its = static_cast<Place*>(self);
    ++its->downs;
    its->why = loss->why;
    its->error = loss->error;
    its->unconfirmed = loss->unconfirmed;
    if (its->free_in_down) its->redial.reset();
  };
  handlers.prove = [](void*, aeconn_redial* redial, aeconn_conn* conn) {
    REQUIRE(aeconn_write(conn, "?", 1) == 1);
    aeconn_on_readable(
        conn,
        [](void* its_redial, aeconn_conn* its) {
          char answer = 0;
          if (aeconn_read(its, &answer, 1) < 0) return;
          aeconn_on_readable(its, nullptr, nullptr);
          aeconn_redial_proved(static_cast<aeconn_redial*>(its_redial), answer == '?' ? 1 : 0);
          // A second call is too late and has no effect.
        },
        redial);
  };
  handlers.changed = [](void* self, aeconn_redial*) { ++static_cast<Place*>(self)->changes; };
  aeconn_redial_settings settings;
  aeconn_redial_defaults(&settings);
  REQUIRE(settings.first_pause == 50'000'000);
  settings.first_pause = 1'000'000;
  settings.most_pause = 8'000'000;
  settings.attempt = settings.proof = 60 * kSecond;
  place.redial.reset(aeconn_redial_new(loop.get(), url.c_str(), &handlers, &settings, &place));
  INFO(aeconn_error());
  REQUIRE(place.redial != nullptr);
  REQUIRE(aeconn_redial_connection(place.redial.get()) == nullptr);
  until(loop.get(), [&] { return place.ups == 1; });
  std::array<char, 200> line;
  REQUIRE(aeconn_redial_describe(place.redial.get(), line.data(), line.size()) == 2);
  REQUIRE(std::string_view(line.data()) == "up");

  place.listener.reset();
  place.served.clear();
  until(loop.get(), [&] { return place.downs == 1; });
  REQUIRE(place.unconfirmed == 4);
  REQUIRE(!place.why.empty());
  until(loop.get(), [&] {
    aeconn_redial_describe(place.redial.get(), line.data(), line.size());
    return std::string_view(line.data()).find("refused") != std::string_view::npos;
  });
  place.listen(url);
  until(loop.get(), [&] { return place.ups == 2; });
  REQUIRE(aeconn_redial_drop(place.redial.get(), "for the test") == 0);
  REQUIRE(aeconn_redial_try_now(place.redial.get()) == 0);
  until(loop.get(), [&] { return place.ups == 3; });
  std::string text;
  aeconn_redial_statistics(place.redial.get(), add, &text);
  REQUIRE_THAT(text, Contains("connected=3;lost=2;"));
  aeconn_redial_not_taken(place.redial.get(), add, &text);
  aeconn_redial_proved(place.redial.get(), 0);  // too late, no effect
  REQUIRE(aeconn_redial_get_phase(place.redial.get()) == AECONN_REDIAL_UP);
  place.free_in_down = true;
  place.served.clear();
  until(loop.get(), [&] { return place.redial == nullptr; });
  REQUIRE(place.changes > 3);

  settings.first_pause = -1;
  CHECK(aeconn_redial_new(loop.get(), url.c_str(), &handlers, &settings, nullptr) == nullptr);
  settings.first_pause = INT64_MAX;
  CHECK(aeconn_redial_new(loop.get(), url.c_str(), &handlers, &settings, nullptr) == nullptr);
  CHECK(aeconn_redial_new(loop.get(), "smoke://x:1", &handlers, nullptr, nullptr) == nullptr);
}

TEST_CASE("C: a listener of one loop has no shares", "[c][group]") {
  const Loop loop(aeconn_loop_new());
  const Listener listener(aeconn_listen(
      loop.get(), "tcp://127.0.0.1:0", [](void*, aeconn_conn* conn) { aeconn_close(conn); },
      nullptr));
  REQUIRE(listener != nullptr);
  uint64_t open = 7, assigned = 7;
  errno = 0;
  REQUIRE(aeconn_listener_share(listener.get(), 0, &open, &assigned) == -1);
  REQUIRE(errno == EINVAL);
  REQUIRE_THAT(aeconn_error(), Contains("not one of a group"));
  REQUIRE(open + assigned == 14);
}

TEST_CASE("C: what a list did not take is told", "[c]") {
  const Loop loop(aeconn_loop_new());
  Conn served;
  const Listener listener(aeconn_listen(
      loop.get(), "tcp://127.0.0.1:0",
      [](void* to, aeconn_conn* conn) { static_cast<Conn*>(to)->reset(conn); }, &served));
  std::string told, not_served;
  aeconn_listener_not_served(listener.get(), add, &not_served);
  REQUIRE(not_served.empty());
  REQUIRE(aeconn_on_fallback(add, &told) == 0);
  std::string url = aeconn_listener_url(listener.get(), 0);
  url.replace(0, 3, "unix|tcp");
  const Conn client(aeconn_connect(loop.get(), url.c_str(), nullptr, nullptr));
  if (client == nullptr) {  // the two transports have no address in common
    url.replace(0, 8, "rdma|tcp");
  }
  const Conn other(aeconn_connect(loop.get(), url.c_str(), nullptr, nullptr));
  INFO(aeconn_error());
  REQUIRE(other != nullptr);
  until(loop.get(), [&] { return aeconn_get_state(other.get()) == AECONN_CONNECTED; });
  REQUIRE(aeconn_on_fallback(nullptr, nullptr) == 0);
  REQUIRE_THAT(told, Contains("=not "));
  REQUIRE(aeconn_peer_user(other.get(), nullptr, 0) == 0);
}

TEST_CASE("C: null handles of groups and redials", "[c]") {
  CHECK(aeconn_group_size(nullptr) == 0);
  CHECK(aeconn_group_post(nullptr, 0, nullptr, nullptr) == -1);
  CHECK(aeconn_group_wait(nullptr) == -1);
  CHECK(aeconn_group_listen(nullptr, nullptr, AECONN_FEWEST, nullptr, nullptr) == nullptr);
  CHECK(aeconn_group_metrics(nullptr, nullptr, nullptr) == -1);
  CHECK(aeconn_listener_share(nullptr, 0, nullptr, nullptr) == -1);
  CHECK(aeconn_metrics(nullptr, nullptr, nullptr) == -1);
  CHECK(aeconn_peer_user(nullptr, nullptr, 0) == 0);
  CHECK(aeconn_peer_credentials(nullptr, nullptr, nullptr, nullptr) == -1);
  CHECK(aeconn_last_errno(nullptr) == EINVAL);
  CHECK(aeconn_redial_new(nullptr, nullptr, nullptr, nullptr, nullptr) == nullptr);
  CHECK(aeconn_redial_get_phase(nullptr) == AECONN_REDIAL_STOPPED);
  CHECK(aeconn_redial_connection(nullptr) == nullptr);
  CHECK(aeconn_redial_describe(nullptr, nullptr, 0) == 0);
  CHECK(aeconn_redial_unconfirmed(nullptr) == 0);
  CHECK(aeconn_redial_drop(nullptr, nullptr) == -1);
  CHECK(aeconn_redial_try_now(nullptr) == -1);
  aeconn_group_stop(nullptr);
  aeconn_group_free(nullptr);
  aeconn_listener_not_served(nullptr, nullptr, nullptr);
  aeconn_redial_confirm(nullptr, 1);
  aeconn_redial_not_taken(nullptr, nullptr, nullptr);
  aeconn_redial_proved(nullptr, 1);
  aeconn_redial_statistics(nullptr, nullptr, nullptr);
  aeconn_redial_stop(nullptr);
  aeconn_redial_defaults(nullptr);
  aeconn_redial_free(nullptr);
}
