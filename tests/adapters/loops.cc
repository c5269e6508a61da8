// SPDX-License-Identifier: BSD-3-Clause
// ae::EpollLoop within a host's loop, with the adapter for it: loops LISTEN [QUERY] serves an echo
// at the URL LISTEN and connects to it with the options QUERY. Ends with "N passed, N failed".
// `loops terminate` ends by an exception without a handler. tests/adapters/loop_hosts.h selects the
// host.

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "conn/transports/transports.h"
#include "tests/adapters/loop_hosts.h"
#include "tests/adapters/recipes.h"

namespace {

using namespace std::chrono_literals;

int passed = 0, failed = 0;
const char* volatile doing = "nothing";  // printed by the watchdog

void check(bool fine, std::string_view what, std::string_view got = {}) {
  ++(fine ? passed : failed);
  if (!fine) std::cout << "FAIL " << what << (got.empty() ? "" : ": ") << got << std::endl;
}

/// Watchdog: if the tests are not over by then, a wake-up was lost.
void watch() {
  const char* slower = ::getenv("AECONN_SLOWER");
  const int times = slower != nullptr ? ::atoi(slower) : 1;
  ::signal(SIGALRM, [](int) {
    const std::string_view words[] = {"FAIL hangs at: ", doing, "\n0 passed, 1 failed\n"};
    for (const std::string_view text : words)
      [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    ::_exit(1);
  });
  ::alarm(60u * static_cast<unsigned>(times > 0 ? times : 1));
}

/// The bytes that one end sends, varied so that shifts are detected.
std::string bytes(std::size_t size, std::size_t seed) {
  std::string result(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    result[i] = static_cast<char>((i * 31 + seed * 7 + i / 251) & 0xff);
  return result;
}

/// Writes as many bytes as possible, and the rest when the connection is writable.
class Outgoing {
 public:
  explicit Outgoing(conn::Connection& connection) : connection_(connection) {}
  void send(std::string_view bytes) {
    waiting_ += bytes;
    flush();
  }

 private:
  void flush() {
    while (!waiting_.empty()) {
      const ssize_t count = connection_.write(waiting_.data(), waiting_.size());
      if (count < 0) break;
      waiting_.erase(0, static_cast<std::size_t>(count));
    }
    const bool wants = !waiting_.empty();
    if (wants == connection_.has_write_handler()) return;
    if (wants)
      connection_.set_write_handler([this](conn::Connection&) { flush(); });
    else
      connection_.set_write_handler(nullptr);
  }
  conn::Connection& connection_;
  std::string waiting_;
};

class Test {
 public:
  Test(Host& its_host, std::string listen, std::string query);

  void echoes();
  void timers();
  void posts();
  void from_outside();
  template <class SomeHost>
  void before_the_sleep(SomeHost& host);
  void exceptions();
  void nested();
  void detaches();
  void ends();

 private:
  struct Served {
    explicit Served(conn::ConnectionPtr its) : connection(std::move(its)), out(*connection) {}
    conn::ConnectionPtr connection;
    Outgoing out;
  };
  struct Client {
    explicit Client(conn::ConnectionPtr its) : connection(std::move(its)), out(*connection) {}
    conn::ConnectionPtr connection;
    Outgoing out;
    std::string expected, got;
    int answers = 0;
    std::function<void()> on_answer;
  };

  void attach() {
    host_.attach(loop_, [this](std::exception_ptr what) {
      ++caught_;
      try {
        std::rethrow_exception(what);
      } catch (const std::runtime_error& error) {
        caught_words_ = error.what();
      }
      noticed();
    });
  }
  void accepted(conn::ConnectionPtr connection);
  std::unique_ptr<Client> connect();
  void send(Client& client, std::size_t size) {
    client.expected = bytes(size, static_cast<std::size_t>(client.answers));
    client.out.send(client.expected);
  }

  /// Runs the host until the condition holds; checked after each event of the library.
  void until(const char* what, std::function<bool()> condition) {
    doing = what;
    if (condition()) return;
    condition_ = std::move(condition);
    host_.run();
    if (condition_ != nullptr) check(false, std::string("the host returns before: ") + what);
    condition_ = nullptr;
  }
  void noticed() {
    if (condition_ == nullptr || !condition_()) return;
    condition_ = nullptr;
    host_.stop();
  }

  const conn::Registry registry_ = conn::all_transports();
  Host& host_;
  ae::EpollLoop loop_;
  std::string query_;
  std::vector<std::unique_ptr<Served>> served_;
  int ended_ = 0, caught_ = 0;
  std::string caught_words_;
  std::function<bool()> condition_;
  conn::ListenerPtr listener_;
  std::unique_ptr<Client> client_;
};

Test::Test(Host& its_host, std::string listen, std::string query)
    : host_(its_host), query_(std::move(query)) {
  listener_ = registry_.listen(
      loop_, listen, [this](conn::ConnectionPtr connection) { accepted(std::move(connection)); });
  attach();
  client_ = connect();
}

void Test::accepted(conn::ConnectionPtr connection) {
  served_.push_back(std::make_unique<Served>(std::move(connection)));
  Served* const it = served_.back().get();
  it->connection->set_read_handler([this, it](conn::Connection& its) {
    std::array<char, 16384> room;
    const ssize_t count = its.read(room.data(), room.size());
    if (count > 0) return it->out.send({room.data(), static_cast<std::size_t>(count)});
    if (count < 0 && errno == EAGAIN) return;
    ++ended_;
    std::erase_if(served_, [it](const auto& other) { return other.get() == it; });
    noticed();
  });
}

std::unique_ptr<Test::Client> Test::connect() {
  const conn::Endpoint at = listener_->endpoints().front();
  const std::string where =
      at.hosts.empty() ? at.path : conn::host_port(at.hosts.front().name, at.port);
  bool connected = false;
  auto client = std::make_unique<Client>(registry_.connect(
      loop_, at.scheme + "://" + where + "?" + query_, [&](conn::Connection& connection) {
        check(connection.state() == conn::State::kConnected, connection.last_error());
        connected = true;
        noticed();
      }));
  until("connecting", [&] { return connected; });
  Client* const it = client.get();
  it->connection->set_read_handler([this, it](conn::Connection& its) {
    std::array<char, 16384> room;
    const ssize_t count = its.read(room.data(), room.size());
    if (count > 0) it->got.append(room.data(), static_cast<std::size_t>(count));
    if (count == 0 || (count < 0 && errno != EAGAIN)) its.set_read_handler(nullptr);
    if (it->expected.empty() || it->got.size() < it->expected.size()) return;
    if (it->got != it->expected) check(false, "an answer is what was sent");
    it->got.clear();
    it->expected.clear();
    ++it->answers;
    if (const auto on_answer = it->on_answer) on_answer();
    noticed();
  });
  return client;
}

void Test::echoes() {
  client_->on_answer = [this] {
    if (client_->answers < 200)
      send(*client_, client_->answers % 10 == 9
                         ? 200'000
                         : 1 + 37 * static_cast<std::size_t>(client_->answers));
  };
  send(*client_, 5);
  until("200 echoes", [this] { return client_->answers == 200; });
  client_->on_answer = nullptr;
  check(client_->answers == 200, "200 echoes from handlers");
}

void Test::timers() {
  std::string order;
  const auto once = [&](char name) {
    return [&order, name, this] {
      order += name;
      noticed();
      return ae::kNoMore;
    };
  };
  const ae::TimePoint now = std::chrono::steady_clock::now();
  loop_.add_time_event(now + 20ms, once('c'));
  loop_.add_time_event(now + 1ms, once('a'));
  const ae::TimerId never = loop_.add_time_event(now + 5ms, once('x'));
  loop_.add_time_event(now + 10ms, once('b'));
  loop_.remove_time_event(never);
  bool early = false;
  until("timers", [&] {
    early = early || (order.size() == 3 && std::chrono::steady_clock::now() < now + 20ms);
    return order.size() == 3;
  });
  check(order == "abc" && !early, "timers in their order, and not early");

  int times = 0;
  loop_.add_time_event(0ms, [&]() -> ae::Duration {
    ++times;
    noticed();
    return times < 5 ? ae::Duration(1ms) : ae::kNoMore;
  });
  until("a timer again and again", [&] { return times == 5; });
  check(times == 5, "a timer again and again");
}

void Test::posts() {
  int got = 0;
  bool in_order = true;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i)
      loop_.post([&, i] {
        in_order = in_order && got == i;
        ++got;
        noticed();
      });
  });
  until("posts of another thread", [&] { return got == 1000; });
  other.join();
  check(in_order, "posts of another thread, in their order");
}

// Writes in a host's callback, or before the host runs, cause no event: nudge() announces them. The
// next timer, which would hide a missing wake-up, is an hour away.
/// Work of a host's callback that runs after the adapter's preparation wakes the host.
template <class SomeHost>
void Test::before_the_sleep(SomeHost& host) {
  if constexpr (SomeHost::kPrepares) {
    for (int i = 0; i < 50; ++i) {
      const int before = client_->answers;
      host.late = [this] { send(*client_, 100); };
      until("an answer to a callback before the sleep", [&] { return client_->answers > before; });
      bool rang = false;
      host.late = [&] {
        loop_.add_time_event(0ms, [&] {
          rang = true;
          noticed();
          return ae::kNoMore;
        });
      };
      until("a timer that is set before the sleep", [&] { return rang; });
    }
    check(client_->answers >= 50, "what is done right before the sleep is seen to at once");
  }
}

void Test::from_outside() {
  for (int i = 0; i < 50; ++i) {
    const int before = client_->answers;
    host_.soon([&] { send(*client_, 100); });
    until("an answer to a callback of the host's", [&] { return client_->answers > before; });
  }
  for (int i = 0; i < 50; ++i) {
    const int before = client_->answers;
    send(*client_, 3000);
    until("an answer to what was sent before", [&] { return client_->answers > before; });
  }
  before_the_sleep(host_);
  int rang = 0;
  for (int i = 1; i <= 10; ++i) {
    host_.soon([&] {
      loop_.add_time_event(0ms, [&] {
        ++rang;
        noticed();
        return ae::kNoMore;
      });
    });
    until("a timer that the host set", [&] { return rang == i; });
  }
  const int ended = ended_;
  auto second = connect();
  host_.soon([&] { second.reset(); });
  until("the end of a connection that the host closed", [&] { return ended_ > ended; });
  check(ended_ == ended + 1, "what the host does outside handlers is seen to at once");
}

void Test::exceptions() {
  const int before = caught_, answers = client_->answers;
  bool ran = false;
  loop_.post([] { throw std::runtime_error("of a post"); });
  loop_.post([&] {
    ran = true;
    noticed();
  });
  until("an exception", [&] { return caught_ > before && ran; });
  check(caught_ == before + 1 && caught_words_ == "of a post", "an exception comes out once");
  client_->on_answer = [this] {
    client_->on_answer = nullptr;
    throw std::runtime_error("of a read handler");
  };
  send(*client_, 10);
  until("an exception of a read handler", [&] { return caught_ > before + 1; });
  check(caught_words_ == "of a read handler", "that of a read handler");
  send(*client_, 10);
  until("an answer after exceptions", [&] { return client_->answers == answers + 2; });
  check(caught_ == before + 2, "the loop is usable after exceptions");
}

void Test::nested() {
  if (!Host::kNests) return;
  auto second = connect();
  bool over = false;
  client_->on_answer = [&] {
    client_->on_answer = nullptr;
    send(*second, 5000);
    while (second->answers == 0) host_.turn();
    over = true;
  };
  send(*client_, 10);
  until("a nested turn", [&] { return over; });
  check(second->answers == 1, "a handler lets the host turn, and others are served");
}

void Test::detaches() {
  bool ran = false;
  doing = "a detach in a handler";
  loop_.post([&] {
    host_.detach();
    host_.stop();
  });
  host_.run();
  const int answers = client_->answers;
  loop_.post([&] {
    ran = true;
    noticed();
  });
  host_.soon([this] { host_.stop(); });
  doing = "the host alone";
  host_.run();
  check(!ran, "a loop that was detached does not turn");

  // A host that only polls, after detaching from the other one.
  send(*client_, 70'000);
  doing = "below poll(2)";
  while (client_->answers == answers) {
    pollfd ours{loop_.descriptor(), POLLIN, 0};
    ::poll(&ours, 1, -1);
    loop_.dispatch();
  }
  check(ran, "below another host it does");

  attach();
  send(*client_, 70'000);
  until("an answer after the loop was attached anew",
        [&] { return client_->answers == answers + 2; });
  host_.soon([this] {
    host_.detach();
    attach();
    send(*client_, 20);
  });
  until("an answer after that in a callback of the host's",
        [&] { return client_->answers == answers + 3; });
  host_.detach();

  send(*client_, 10);
  client_->on_answer = [this] { loop_.stop(); };
  doing = "a loop by itself";
  loop_.run();
  client_->on_answer = nullptr;
  check(client_->answers == answers + 4, "it runs by itself after that");
  attach();
}

void Test::ends() {
  const int ended = ended_;
  client_.reset();
  until("the end", [&] { return ended_ > ended; });
  check(served_.empty(), "every connection has ended");
  host_.detach();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  watch();
  Host host;
  if (std::string_view(argv[1]) == "terminate") {
    ae::EpollLoop loop;
    host.attach(loop, nullptr);
    loop.post([] { throw std::runtime_error("for nobody"); });
    host.run();
    return 1;
  }
  if (std::string_view(argv[1]) == "recipe") {
    ae::EpollLoop loop;
    bool ran = false;
    loop.add_time_event(1ms, [&] { return ran = true, ae::kNoMore; });
    loop.add_time_event(5ms, []() -> ae::Duration { throw std::runtime_error("the end"); });
    try {
      recipe(loop, host);
      check(false, "what a handler throws comes out");
    } catch (const std::runtime_error& error) {
      check(ran && std::string_view(error.what()) == "the end", "a recipe", error.what());
    }
    std::cout << passed << " passed, " << failed << " failed" << std::endl;
    return failed == 0 ? 0 : 1;
  }
  {
    Test test(host, argv[1], argc > 2 ? argv[2] : "");
    test.echoes();
    test.timers();
    test.posts();
    test.from_outside();
    test.exceptions();
    test.nested();
    test.detaches();
    test.ends();
  }
  doing = "the host's end";
  check(host.finish(), "nothing is left in the host");
  std::cout << passed << " passed, " << failed << " failed" << std::endl;
  return failed == 0 ? 0 : 1;
}
