// SPDX-License-Identifier: BSD-3-Clause
// Each entry point of the connection layer under adverse conditions, over each transport: without
// free descriptors, with interrupting signals, and with another thread that does the same. Whatever
// an entry point returns, the loop must go on, a connection that it does not end must still carry
// bytes, and afterwards the resource must be available again. The table lists each public function
// of the headers; a missing one fails the test.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <new>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "conn/connection_type.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using testing::Transport;

namespace {

/// A connected pair. Contains no assertions, since a second thread uses one, too.
struct Place : testing::Site {
  explicit Place(const Transport& its_transport) : Site(its_transport) {
    listener = Site::listen(
        [this](ConnectionPtr accepted) { (server ? last : server) = std::move(accepted); });
    client = connect(testing::address_of(*listener));
    bool late = false;
    const auto stands = [this] { return server && client->state() != conn::State::kConnecting; };
    const ae::TimerId timer = loop.add_time_event(testing::patience(), [&] {
      late = true;
      return ae::kNoMore;
    });
    const ae::HookId hook = loop.add_before_sleep([&] {
      if (stands() || late) loop.stop();
    });
    loop.run();
    loop.remove_hook(hook);
    loop.remove_time_event(timer);
    if (!stands()) throw std::runtime_error("no connection in time");
  }
  conn::ListenerPtr listener;
  ConnectionPtr client, server, last;  ///< `last`: accepted after the pair
  Connection::Handler nothing = [](Connection&) {};
  ConnectionPtr other;  ///< the connection made by the entry point
  std::string bytes = "bytes";
};

struct Entry {
  const char* name;
  std::function<void(Place&)> call;
  bool ends = false;  ///< ends the pair's client
};

/// A buffer to read into, one per thread.
std::span<char> room() {
  static thread_local std::array<char, 64> bytes;
  return bytes;
}

const std::vector<Entry>& entries() {
  static const std::array<char, 5> text{"four"};
  const ae::Duration at_once = std::chrono::milliseconds(1);
  static const std::vector<Entry> all = {
      {"connect", [](Place& p) { p.other = p.connect(testing::address_of(*p.listener)); }},
      {"connect_blocking",
       [at_once](Place& p) {
         p.other = p.type.create(p.loop);
         (void)p.other->connect_blocking(p.deserted(), at_once);
       }},
      {"create", [](Place& p) { p.other = p.registry.create(p.loop, p.fresh()); }},
      {"listen", [](Place& p) { (void)p.Site::listen([](ConnectionPtr) {}); }},
      {"adopt", [](Place& p) { (void)p.type.adopt(p.loop, -1); }},
      {"adopt_listener", [](Place& p) { (void)p.type.adopt_listener(p.loop, -1, nullptr); }},
      {"register_memory",
       [](Place& p) { (void)p.type.register_memory(p.loop, std::as_writable_bytes(room())); }},
      {"configure",
       [](Place& p) {
         p.type.configure({{"no-such-option", "1"}});
       }},
      {"check", [](Place& p) { p.type.check(p.fresh()); }},
      {"prepare", [](Place& p) { p.type.prepare(p.fresh()); }},
      {"prepare_client", [](Place& p) { p.type.prepare_client(p.fresh()); }},
      {"reload_tls", [](Place& p) { p.registry.reload_tls(); }},
      {"capacity", [](Place& p) { (void)p.type.capacity(p.fresh(), 10); }},
      {"statistics", [](Place& p) { (void)p.type.statistics(p.loop); }},
      {"counters", [](Place& p) { (void)p.type.counters(p.loop); }},
      {"cleanup", [](Place& p) { p.type.cleanup(p.loop); }},
      {"process_pending_data", [](Place& p) { (void)p.registry.process_pending_data(p.loop); }},
      {"has_pending_data", [](Place& p) { (void)p.registry.has_pending_data(p.loop); }},
      {"pause", [](Place& p) { p.listener->pause(); }},
      {"resume", [](Place& p) { p.listener->pause(), p.listener->resume(); }},
      {"hold_back", [](Place& p) { p.listener->hold_back(), p.listener->resume(); }},
      {"endpoints", [](Place& p) { (void)p.listener->endpoints(); }},
      {"on_refused", [](Place& p) { p.listener->on_refused([](const conn::Failure&) {}); }},
      {"read", [](Place& p) { (void)p.client->read(room().data(), room().size()); }},
      {"readv",
       [](Place& p) {
         const iovec into{room().data(), room().size()};
         (void)p.client->readv(&into, 1);
       }},
      {"write", [](Place& p) { (void)p.server->write(text.data(), 0); }},
      {"writev", [](Place& p) { (void)p.server->writev(nullptr, 0); }},
      {"flush", [](Place& p) { p.client->flush(); }},
      {"peek", [](Place& p) { (void)p.client->peek(); }},
      {"consume", [](Place& p) { p.client->consume(0); }},
      {"reserve", [](Place& p) { (void)p.client->reserve(1), p.client->commit(0); }},
      {"commit", [](Place& p) { (void)p.client->reserve(1), p.client->commit(0); }},
      {"set_read_handler", [](Place& p) { p.client->set_read_handler(p.nothing); }},
      {"set_write_handler", [](Place& p) { p.client->set_write_handler(p.nothing); }},
      {"set_close_handler", [](Place& p) { p.client->set_close_handler(p.nothing); }},
      {"set_path_handler", [](Place& p) { p.client->set_path_handler(p.nothing); }},
      {"sync_wait", [at_once](Place& p) { (void)p.client->sync_wait(ae::kReadable, at_once); }},
      {"sync_read", [at_once](Place& p) { (void)p.client->sync_read(room().data(), 1, at_once); }},
      {"sync_write", [at_once](Place& p) { (void)p.client->sync_write(text.data(), 0, at_once); }},
      {"sync_readline",
       [at_once](Place& p) { (void)p.client->sync_readline(room().data(), 9, at_once); }},
      {"path", [](Place& p) { (void)p.client->path(); }},
      {"info", [](Place& p) { (void)p.client->info(); }},
      {"is_local", [](Place& p) { (void)p.client->is_local(); }},
      {"local_address", [](Place& p) { (void)p.client->local_address(); }},
      {"local_sockaddr",
       [](Place& p) {
         sockaddr_storage to{};
         (void)p.client->local_sockaddr(to);
       }},
      {"peer_sockaddr",
       [](Place& p) {
         sockaddr_storage to{};
         (void)p.client->peer_sockaddr(to);
       }},
      {"peer_address", [](Place& p) { (void)p.client->peer_address(); }},
      {"peer_certificate", [](Place& p) { (void)p.client->peer_certificate(); }},
      {"peer_user", [](Place& p) { (void)p.client->peer_user(); }},
      {"peer_credentials", [](Place& p) { (void)p.client->peer_credentials(); }},
      {"rebind", [](Place& p) { (void)p.client->rebind(p.loop); }},
      {"leave",
       [](Place& p) {
         if (p.client->leave()) (void)p.client->join(p.loop);
       }},
      {"join",
       [](Place& p) {
         if (p.client->leave()) (void)p.client->join(p.loop);
       }},
      {"shutdown", [](Place& p) { (void)p.client->shutdown(); }, true},
      {"shutdown_both", [](Place& p) { (void)p.client->shutdown_both(); }, true},
      {"abort", [](Place& p) { p.client.release()->abort(); }, true},
      {"close", [](Place& p) { p.client.reset(); }, true},
  };
  return all;
}

/// Calls the entry point. It may throw a documented exception, or a text that describes a failure.
void call(const Entry& entry, Place& place) try {
  entry.call(place);
} catch (const conn::Error& error) {
  if (std::strlen(error.what()) == 0) throw;
} catch (const std::bad_alloc&) {
  if (!std::string_view(entry.name).ends_with("_handler")) throw;
}

/// Whether bytes written by each end reach the other.
bool carries(Place& place) {
  place.client->set_read_handler(nullptr);
  place.client->set_write_handler(nullptr);
  for (const auto& [from, to] : {std::pair(place.client.get(), place.server.get()),
                                 {place.server.get(), place.client.get()}}) {
    testing::send(place.loop, *from, place.bytes);
    if (testing::receive(place.loop, *to, place.bytes.size()) != place.bytes) return false;
  }
  return true;
}

/// Checks what must hold after any entry point under any condition.
void look_after(const Entry& entry, Place& place) {
  place.other.reset();
  testing::turns(place.loop, 3);
  if (!entry.ends) REQUIRE(carries(place));
  place.listener->resume();
  place.last.reset();
  const ConnectionPtr again = place.connect(testing::address_of(*place.listener));
  RUN_UNTIL(place.loop, place.last != nullptr && again->state() == conn::State::kConnected);
}

/// Calls `work` with each entry point; those that end the connection get a new pair.
void with_each(const Transport& transport, const std::function<void(const Entry&, Place&)>& work) {
  std::optional<Place> place;
  for (const Entry& entry : entries()) {
    if (!place) place.emplace(transport);
    work(entry, *place);
    if (entry.ends) place.reset();
  }
}

/// Takes all available descriptors until destroyed.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int highest = ::dup(STDIN_FILENO);
    rlimit tight = before_;
    tight.rlim_cur = static_cast<rlim_t>(highest) + 1;
    setrlimit(RLIMIT_NOFILE, &tight);
    ::close(highest);
    for (int fd = 0; (fd = ::dup(STDIN_FILENO)) >= 0;) taken_.push_back(fd);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  ~NoDescriptors() {
    for (const int fd : taken_) ::close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

/// Sends SIGALRM without SA_RESTART as often as the kernel can.
class SignalStorm {
 public:
  SignalStorm() {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, &before_);
    set(50);
  }
  SignalStorm(const SignalStorm&) = delete;
  SignalStorm& operator=(const SignalStorm&) = delete;
  ~SignalStorm() {
    set(0);
    sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  static void set(long microseconds) {
    const itimerval timer{{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }
  struct sigaction before_ {};
};

/// The names of the public functions of a header's classes.
std::set<std::string> public_functions(const std::string& header) {
  std::ifstream file(header);
  std::stringstream all;
  all << file.rdbuf();
  std::string text = std::regex_replace(all.str(), std::regex("//[^\n]*"), "");
  text = std::regex_replace(text, std::regex("\\{[^{}\n]*\\}"), ";");
  std::set<std::string> names;
  bool open = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("class ") || line.starts_with("struct ")) open = line[0] == 's';
    if (line.starts_with(" public:")) open = true;
    if (line.starts_with(" protected:") || line.starts_with(" private:")) open = false;
    static const std::regex kFunction("(?:[\\w>&*] |[&*])([a-z]\\w*)\\(");
    std::smatch found;
    // Members are indented by two columns, the bodies of inline functions by more.
    if (open && line.starts_with("  ") && line[2] != ' ' &&
        std::regex_search(line, found, kFunction))
      if (found[1] != "operator") names.insert(found[1]);
  }
  return names;
}

}  // namespace

TEST_CASE("entry points: the table has each public function", "[conn]") {
  // Not in the table: functions that cannot fail, wait or make system calls, that others call, or
  // that are tested with others.
  const std::set<std::string> others = {"state",
                                        "last_error",
                                        "error_code",
                                        "retry_after",
                                        "type",
                                        "loop",
                                        "fd",
                                        "local_host_port",
                                        "peer_host_port",
                                        "id",
                                        "bytes_read",
                                        "bytes_written",
                                        "private_data",
                                        "set_private_data",
                                        "has_read_handler",
                                        "has_write_handler",
                                        "send",
                                        "name",
                                        "capabilities",
                                        "option_table",
                                        "open_port",
                                        "adopt_port",
                                        "open_acceptor",
                                        "add",
                                        "add_unavailable",
                                        "find",
                                        "require",
                                        "types",
                                        "list",
                                        "lists",
                                        "types_and_lists",
                                        "clear_handlers",
                                        "find_option",
                                        "why_ended",
                                        "on_fallback",
                                        "not_served"};
  std::set<std::string> known = others;
  for (const Entry& each : entries()) known.insert(each.name);
  for (const char* header : {"conn/connection.h", "conn/connection_facts.h",
                             "conn/connection_type.h", "conn/listener.h", "conn/registry.h"}) {
    const std::set<std::string> names = public_functions(header);
    CHECK(names.size() >= 4);
    for (const std::string& name : names) {
      INFO(header << ": " << name << "() is new: give it a row in entries()");
      CHECK(known.contains(name));
    }
  }
}

TEST_CASE("entry points: without a descriptor to be had", "[conn]") {
  if (testing::simulated()) return;  // simulated devices need descriptors themselves
#ifdef __SANITIZE_ADDRESS__
  return;  // UBSan needs a descriptor to check memory
#endif
  FOR_EVERY_TRANSPORT(transport) {
    with_each(transport, [](const Entry& entry, Place& place) {
      CAPTURE(entry.name);
      {
        const NoDescriptors none;
        call(entry, place);
        testing::turns(place.loop, 3);
      }
      look_after(entry, place);
    });
  }
}

TEST_CASE("entry points: in a storm of signals", "[conn]") {
  if (testing::simulated()) return;  // simulated devices wait within the loop's own sleep
  FOR_EVERY_TRANSPORT(transport) {
    with_each(transport, [](const Entry& entry, Place& place) {
      CAPTURE(entry.name);
      const SignalStorm storm;
      call(entry, place);
      look_after(entry, place);
    });
  }
}

TEST_CASE("entry points: with a thread beside that does the same", "[conn]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (transport.threads && !testing::simulated()) {
      // Each thread has a loop, a registry and connections of its own; only the library's state is
      // shared.
      const auto all = [&transport] {
        with_each(transport, [](const Entry& entry, Place& place) {
          call(entry, place);
          testing::turns(place.loop, 1);
        });
      };
      std::thread beside(all);
      all();
      beside.join();
    }
  }
}
