// SPDX-License-Identifier: BSD-3-Clause
// ContextTable: what other threads can do while configure(), a listener or prepare_clients() reads
// files. One of the files is a pipe, so that reading it lasts until the test writes it.
#if AECONN_TLS

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <thread>

#include "conn/error.h"
#include "conn/tls/context_source.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"
#include "tests/support/environment.h"
#include "tests/support/testing.h"

using conn::Options;
using conn::tls::Context;
using conn::tls::ContextSource;
using namespace std::chrono_literals;

namespace {

using Source = std::shared_ptr<const ContextSource>;

/// A pipe in the place of a file.
class Pipe {
 public:
  explicit Pipe(std::string path) : path_(std::move(path)) {
    REQUIRE(::mkfifo(path_.c_str(), 0600) == 0);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() { give({}); }
  const std::string& path() const noexcept { return path_; }
  /// Waits until a thread reads the pipe.
  void await_reader() {
    const auto until = std::chrono::steady_clock::now() + 20s;
    do {
      fd_ = ::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      if (fd_ < 0) std::this_thread::sleep_for(1ms);
    } while (fd_ < 0 && std::chrono::steady_clock::now() < until);
    REQUIRE(fd_ >= 0);
  }
  /// Lets the reader have the content of `file`.
  void give(const std::string& file) {
    if (fd_ < 0) return;
    std::ifstream from(file);
    const std::string bytes{std::istreambuf_iterator<char>(from), {}};
    (void)!::write(fd_, bytes.data(), bytes.size());
    ::close(std::exchange(fd_, -1));
  }

 private:
  const std::string path_;
  int fd_ = -1;
};

/// A table without options, and files that it can be given.
struct TableSite {
  TableSite() { table.configure({}); }
  /// Calls configure() on another thread. Returns once it reads the pipe.
  std::future<void> configure(const Options& options) {
    auto done = std::async(std::launch::async, [this, options] { table.configure(options); });
    pipe.await_reader();
    return done;
  }
  /// Options of a server with this number as its session-cache, so that contexts can be told apart.
  Options server(const std::string& number) const {
    return {{"cert", identity.chain}, {"key", identity.key}, {"session-cache", number}};
  }
  Options key_from_pipe() const {
    return {{"cert", identity.chain}, {"key", pipe.path()}, {"alpn", "new"}};
  }
  /// Calls what connections and statistics of a loop call. Returns whether that took no long time.
  bool answers() {
    auto used = std::async(std::launch::async, [this] {
      (void)table.source({{"session-cache", "7"}}, false)->get();
      (void)table.merged({});
      (void)table.sessions();
      (void)table.certificates_end();
    });
    const bool soon = used.wait_for(10s) == std::future_status::ready;
    if (!soon) pipe.give(identity.key);  // otherwise the test would not end
    used.wait();
    return soon;
  }
  const testing::TempFolder folder;
  const testing::Authority ca{folder};
  const testing::Identity identity = ca.issue({.common_name = "server"});
  Pipe pipe{folder.path() + "/pipe"};
  conn::tls::ContextTable table;
};

bool is_new(const Source& source) {
  return source->get()->settings().alpn == std::vector<std::string>{"new"};
}

/// The number of certificates that clients of `source` trust, apart from those in folders.
int trusted_by(const Source& source) {
  X509_STORE* const store = SSL_CTX_get_cert_store(source->get()->client());
  return sk_X509_OBJECT_num(X509_STORE_get0_objects(store));
}

}  // namespace

TEST_CASE("tls configure: connections do not wait while files are read", "[tls][reload]") {
  TableSite site;
  const Source held = site.table.source(site.server("1"), true);
  SECTION("by configure()") {
    auto done = site.configure(site.key_from_pipe());
    CHECK(site.answers());
    // A listener can be opened, too.
    CHECK(site.table.source(site.server("2"), true)->get()->made_server() != nullptr);
    site.pipe.give(site.identity.key);
    done.get();
    CHECK(is_new(held));
  }
  SECTION("by a listener that opens") {
    auto opened = std::async(std::launch::async,
                             [&] { return site.table.source(site.key_from_pipe(), true); });
    site.pipe.await_reader();
    CHECK(site.answers());
    site.pipe.give(site.identity.key);
    CHECK(opened.get()->get()->made_server() != nullptr);
  }
}

TEST_CASE("tls configure: sources made while it reads files get the new options", "[tls][reload]") {
  TableSite site;
  auto done = site.configure(site.key_from_pipe());
  const Source listener = site.table.source(site.server("1"), true);
  const Source client = site.table.source(site.server("2"), false);
  CHECK_FALSE(is_new(listener));
  site.pipe.give(site.identity.key);
  done.get();
  for (const Source& each : {listener, client}) {
    CHECK(is_new(each));
    CHECK(each->get()->made_server() != nullptr);
  }
  CHECK(site.table.source(site.server("1"), true) == listener);
}

TEST_CASE("tls configure: changes nothing if a listener opened meanwhile cannot have its options",
          "[tls][reload]") {
  TableSite site;
  site.table.configure(site.server("1"));
  const Source slow = site.table.source(site.key_from_pipe(), false);
  const Source source = site.table.source({{"alpn", "mine"}}, false);
  const std::shared_ptr<const Context> before = source->get(), slow_before = slow->get();
  // Without a certificate there can be no listener, which is known to be one only from now on.
  auto done = site.configure({});
  REQUIRE(site.table.source({{"alpn", "mine"}}, true) == source);
  site.pipe.give(site.identity.key);
  CHECK_THROWS_AS(done.get(), conn::Error);
  CHECK(source->get() == before);
  CHECK(slow->get() == slow_before);
  CHECK(site.table.merged({}).values() == site.server("1").values());
}

TEST_CASE("tls configure: several tables change together or not at all", "[tls][reload]") {
  TableSite site;
  conn::tls::ContextTable other;
  site.table.configure(site.server("1"));
  other.configure(site.server("2"));
  const bool other_first = GENERATE(false, true);
  const auto both = [&](const Options& options, const Options& of_other) {
    std::vector<std::unique_ptr<conn::OptionsChange>> changes;
    changes.push_back(other_first ? other.change(of_other) : site.table.change(options));
    changes.push_back(other_first ? site.table.change(options) : other.change(of_other));
    conn::make_changes(changes);
  };
  const Source source = site.table.source({{"alpn", "mine"}}, false);
  auto done = std::async(std::launch::async, [&] { both({}, site.key_from_pipe()); });
  site.pipe.await_reader();
  // Without a certificate there can be no listener, and only now this source belongs to one.
  REQUIRE(site.table.source({{"alpn", "mine"}}, true) == source);
  site.pipe.give(site.identity.key);
  CHECK_THROWS_AS(done.get(), conn::Error);
  CHECK(site.table.merged({}).values() == site.server("1").values());
  CHECK(other.merged({}).values() == site.server("2").values());
  both(site.server("3"), site.server("4"));
  CHECK(site.table.merged({}).values() == site.server("3").values());
  CHECK(other.merged({}).values() == site.server("4").values());
}

TEST_CASE("tls configure: reads the files of clients that are prepared meanwhile",
          "[tls][prepare]") {
  TableSite site;
  const std::string system = site.folder.path() + "/system.pem";
  std::filesystem::copy_file(site.ca.cert(), system);
  const testing::Variable variable("SSL_CERT_FILE", system);
  const Source source = site.table.source(site.server("1"), false);
  SECTION("while configure() reads others") {
    const Source slow = site.table.source(site.key_from_pipe(), false);
    auto done = site.configure({{"alpn", "new"}});
    site.table.prepare_clients(*source);
    site.pipe.give(site.identity.key);
    done.get();
    CHECK(is_new(source));
  }
  SECTION("while configure() replaces the context that they read for") {
    variable.set(site.pipe.path());
    auto done = std::async(std::launch::async, [&] { site.table.prepare_clients(*source); });
    site.pipe.await_reader();
    variable.set(system);
    site.table.configure({{"alpn", "new"}});
    site.pipe.give({});
    done.get();
    CHECK(is_new(source));
  }
  std::filesystem::remove(system);
  CHECK(trusted_by(source) == 1);
}

TEST_CASE("tls configure: a context whose files have changed is prepared for clients as before",
          "[tls][prepare]") {
  TableSite site;
  const std::string system = site.folder.path() + "/system.pem";
  std::filesystem::copy_file(site.ca.cert(), system);
  const testing::Variable variable("SSL_CERT_FILE", system);
  Options options = site.server("1");
  options.set("reload", "auto");
  const Source source = site.table.source(options, false);
  site.table.prepare_clients(*source);
  const auto reload = [&] {
    return source->reload(conn::tls::FileStamps(files_of(source->get()->settings())));
  };
  CHECK(reload() == ContextSource::Reloaded::kNothing);
  std::filesystem::last_write_time(site.identity.key,
                                   std::filesystem::file_time_type::clock::now());
  CHECK(reload() == ContextSource::Reloaded::kReplaced);
  std::filesystem::remove(system);
  CHECK(trusted_by(source) == 1);
}

#endif  // AECONN_TLS
