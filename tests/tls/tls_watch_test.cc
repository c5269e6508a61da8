// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: reload=auto: files that change are read again, however they are replaced.
#if AECONN_TLS

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "conn/error.h"
#include "conn/tls/context_source.h"
#include "conn/tls/file_watch.h"
#include "tests/support/catch.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/tls_kit.h"

using conn::ConnectionPtr;
using conn::Options;
using conn::State;
using testing::Contains;
using testing::Identity;
using testing::NoNewDescriptors;
using testing::TlsSite;
namespace fs = std::filesystem;

namespace {

/// A listener with reload=auto, whose certificate is in tls.crt and tls.key of a folder.
struct WatchSite : TlsSite {
  WatchSite() { fs::create_directory(place); }
  Identity issue(const std::string& name) const {
    return ca.issue({.common_name = name, .names = {"IP:127.0.0.1"}});
  }
  static void write(const std::string& from, const fs::path& to) {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  }
  /// Writes both files in place.
  void install(const Identity& id, const fs::path& where) const {
    write(id.chain, where / "tls.crt");
    write(id.key, where / "tls.key");
  }
  Options files(const fs::path& where) const {
    return {{"cert", where / "tls.crt"}, {"key", where / "tls.key"}, {"reload", "auto"}};
  }
  void serve(const fs::path& where, const Options& more = {}) {
    listener = listen(files(where).merged_with(more));
  }
  /// The common name of the certificate that a new client gets; why it failed, else.
  std::string visit(const Options& options = {}) {
    Options fresh = options;
    fresh.set("resumption", "no");
    const ConnectionPtr a = connect(*listener, fresh);
    if (a->state() != State::kConnected) return a->last_error();
    const ConnectionPtr b = next_accepted();
    require_echo(*a, *b);
    return a->peer_user();
  }
  void run_for(ae::Duration time) {
    bool over = false;
    loop.add_time_event(time, [&] {
      over = true;
      return ae::kNoMore;
    });
    RUN_UNTIL(loop, over);
  }
  std::uint64_t count(const std::string& name) { return count(name, loop); }
  std::uint64_t count(const std::string& name, ae::EventLoop& where) const {
    for (const auto& [key, value] : server.statistics(where))
      if (key == name) return value;
    return 0;
  }
  /// Waits until files have been read again `times` times in all, then visits.
  std::string after_reload(std::uint64_t times) {
    RUN_UNTIL(loop, count("reloads") >= times);
    CHECK(count("reloads") == times);
    return visit();
  }
  /// Waits for the next report of files that cannot be used.
  std::string complaint() { return next_refused().text; }
  const fs::path place = fs::path(folder.path()) / "certs";
  conn::ListenerPtr listener;
};

}  // namespace

TEST_CASE("tls watch: files written in place are read again, as often as they change",
          "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.serve(site.place);
  REQUIRE(site.visit() == "first");
  const ConnectionPtr old = site.connect(*site.listener);
  const ConnectionPtr old_peer = site.next_accepted();
  for (const auto& [name, times] : {std::pair{"second", 1u}, {"third", 2u}, {"fourth", 3u}}) {
    site.install(site.issue(name), site.place);
    REQUIRE(site.after_reload(times) == name);
  }
  site.require_echo(*old, *old_peer);
  REQUIRE(old->peer_user() == "first");
  REQUIRE(site.count("reload_failures") == 0);
}

TEST_CASE("tls watch: files replaced by rename are read again", "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.serve(site.place);
  for (const auto& [name, times] : {std::pair{"second", 1u}, {"third", 2u}}) {
    const fs::path other = fs::path(site.folder.path()) / name;
    fs::create_directory(other);
    site.install(site.issue(name), other);
    for (const char* const file : {"tls.crt", "tls.key"})
      fs::rename(other / file, site.place / file);
    REQUIRE(site.after_reload(times) == name);
  }
}

// Kubernetes: tls.crt -> ..data/tls.crt, ..data -> a folder; a new link is renamed over ..data.
TEST_CASE("tls watch: a link of folders on the path that is swapped is noticed", "[tls][reload]") {
  WatchSite site;
  const auto point_at = [&](const fs::path& version) {
    fs::create_directory_symlink(version, site.place / "..tmp");
    fs::rename(site.place / "..tmp", site.place / "..data");
  };
  const auto prepare = [&](const std::string& version, const std::string& name) {
    fs::create_directory(site.place / version);
    site.install(site.issue(name), site.place / version);
  };
  prepare("..v1", "first");
  point_at("..v1");
  fs::path named = site.place;
  SECTION("a link of the file leads through it") {
    for (const char* const file : {"tls.crt", "tls.key"})
      fs::create_symlink(fs::path("..data") / file, site.place / file);
  }
  SECTION("the option names it as a folder") { named = site.place / "..data"; }
  SECTION("a link elsewhere leads through it, by an absolute path") {
    named = fs::path(site.folder.path()) / "links";
    fs::create_directory(named);
    for (const char* const file : {"tls.crt", "tls.key"})
      fs::create_symlink(site.place / "..data" / file, named / file);
  }
  site.serve(named);
  REQUIRE(site.visit() == "first");
  prepare("..v2", "second");
  point_at("..v2");
  fs::remove_all(site.place / "..v1");
  REQUIRE(site.after_reload(1) == "second");
  prepare("..v3", "third");
  point_at("..v3");
  REQUIRE(site.after_reload(2) == "third");
  // The folder that the link leads to now is watched, too.
  site.install(site.issue("fourth"), site.place / "..v3");
  REQUIRE(site.after_reload(3) == "fourth");
}

// certbot: live/tls.crt -> ../archive/tls1.crt; each link is replaced.
TEST_CASE("tls watch: links to files that are replaced are noticed", "[tls][reload]") {
  WatchSite site;
  const fs::path archive = fs::path(site.folder.path()) / "archive";
  fs::create_directory(archive);
  const auto renew = [&](const std::string& number, const std::string& name) {
    const Identity id = site.issue(name);
    for (const auto& [file, from] : {std::pair{"tls.crt", id.chain}, {"tls.key", id.key}}) {
      WatchSite::write(from, archive / (file + number));
      fs::remove(site.place / file);
      fs::create_symlink(fs::path("../archive") / (file + number), site.place / file);
    }
  };
  renew("1", "first");
  site.serve(site.place);
  REQUIRE(site.visit() == "first");
  renew("2", "second");
  REQUIRE(site.after_reload(1) == "second");
}

TEST_CASE("tls watch: a certificate whose key comes later is used once both are there",
          "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.serve(site.place);
  const Identity second = site.issue("second");
  WatchSite::write(second.chain, site.place / "tls.crt");
  REQUIRE_THAT(site.complaint(),
               Contains("TLS files not read again, the old ones stay: the key ") &&
                   Contains("does not belong to the certificate"));
  REQUIRE(site.visit() == "first");
  WatchSite::write(second.key, site.place / "tls.key");
  REQUIRE(site.after_reload(1) == "second");
  REQUIRE(site.count("reload_failures") == 1);
}

TEST_CASE("tls watch: a file that cannot be used is reported once, and the old one stays",
          "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.serve(site.place);
  std::ofstream(site.place / "tls.crt") << "no certificate\n";
  REQUIRE_THAT(site.complaint(), Contains("tls.crt holds no certificate in PEM form"));
  REQUIRE(site.visit() == "first");
  // Another file of the folder changes: the certificate has not, and is not tried again.
  std::ofstream(site.place / "other") << "x";
  site.run_for(3 * conn::tls::ContextSource::kQuiet);
  REQUIRE(site.count("reload_failures") == 1);
  site.install(site.issue("second"), site.place);
  REQUIRE(site.after_reload(1) == "second");
  REQUIRE(site.refused.empty());
  REQUIRE(site.count("reload_failures") == 1);
}

TEST_CASE("tls watch: files and folders that vanish may come back", "[tls][reload]") {
  WatchSite site;
  const fs::path above = fs::path(site.folder.path()) / "above", place = above / "in" / "certs";
  fs::create_directories(place);
  site.install(site.issue("first"), place);
  site.serve(place);
  const auto come_back = [&](const std::string& name, std::uint64_t times) {
    REQUIRE(site.visit() != name);
    fs::create_directories(place);
    site.install(site.issue(name), place);
    REQUIRE(site.after_reload(times) == name);
  };
  SECTION("the files") {
    fs::remove(place / "tls.crt");
    fs::remove(place / "tls.key");
  }
  SECTION("their folder") { fs::remove_all(place); }
  SECTION("all folders") { fs::remove_all(above); }
  SECTION("a folder above is renamed") { fs::rename(above, site.place / "away"); }
  REQUIRE_THAT(site.complaint(), Contains("tls.crt") && Contains("No such file"));
  REQUIRE(site.visit() == "first");
  come_back("second", 1);
  fs::remove_all(above);
  REQUIRE_THAT(site.complaint(), Contains("No such file"));
  come_back("third", 2);
}

TEST_CASE("tls watch: revocation lists and CAs are watched, too", "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  const Identity alice = site.ca.issue({.common_name = "alice"});
  const std::string crl = site.place / "ca.crl";
  fs::copy_file(site.ca.revoke({}), crl);
  site.serve(site.place, {{"auth-clients", "yes"}, {"ca", site.ca.cert()}, {"crl", crl}});
  const Options as_alice = site.options_of(alice);
  REQUIRE(site.visit(as_alice) == "first");
  WatchSite::write(site.ca.revoke({alice}), crl);
  RUN_UNTIL(site.loop, site.count("reloads") == 1);
  const ConnectionPtr a = site.connect(*site.listener, as_alice);
  REQUIRE_THAT(site.complaint(), Contains("certificate revoked"));
}

TEST_CASE("tls watch: a client reads its files again when it connects", "[tls][reload]") {
  WatchSite site;
  const testing::TempFolder other_folder;
  const testing::Authority other(other_folder);
  const std::string ca = site.place / "ca.pem";
  fs::copy_file(other.cert(), ca);
  site.listener = site.listen();
  const Options options{{"ca", ca}, {"reload", "auto"}, {"resumption", "no"}};
  REQUIRE_THAT(site.visit(options), Contains("certificate"));
  WatchSite::write(site.ca.cert(), ca);
  // Read once the file has not changed for a moment.
  const auto until = std::chrono::steady_clock::now() + testing::patience();
  while (site.visit(options) != "server") REQUIRE(std::chrono::steady_clock::now() < until);
  std::uint64_t reloads = 0;
  for (const auto& [key, value] : site.client.statistics(site.loop))
    if (key == "reloads") reloads = value;
  REQUIRE(reloads == 1);
  std::ofstream(ca) << "nothing\n";
  const auto failures = [&] {
    for (const auto& [key, value] : site.client.statistics(site.loop))
      if (key == "reload_failures") return value;
    return std::uint64_t{0};
  };
  while (failures() == 0) {
    REQUIRE(site.visit(options) == "server");
    REQUIRE(std::chrono::steady_clock::now() < until);
  }
  REQUIRE(site.visit(options) == "server");
}

TEST_CASE("tls watch: configure() turns it on, off, and to other files", "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.server.configure(site.files(site.place).merged_with({{"reload", "no"}}));
  site.listener = site.listen();
  REQUIRE(site.visit() == "first");
  site.install(site.issue("second"), site.place);
  REQUIRE(site.visit() == "first");
  site.server.configure(site.files(site.place));
  REQUIRE(site.visit() == "second");
  site.install(site.issue("third"), site.place);
  REQUIRE(site.after_reload(1) == "third");
  const fs::path other = fs::path(site.folder.path()) / "other";
  fs::create_directory(other);
  site.install(site.issue("fourth"), other);
  site.server.configure(site.files(other));
  REQUIRE(site.visit() == "fourth");
  site.install(site.issue("fifth"), other);
  REQUIRE(site.after_reload(2) == "fifth");
  site.server.configure(site.files(other).merged_with({{"reload", "no"}}));
  REQUIRE(site.visit() == "fifth");
  site.install(site.issue("sixth"), other);
  site.run_for(3 * conn::tls::ContextSource::kQuiet);
  REQUIRE(site.visit() == "fifth");
}

TEST_CASE("tls watch: the first connection after configure() gets what changed since",
          "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.server.configure(site.files(site.place).merged_with({{"reload", "no"}}));
  site.listener = site.listen();
  site.server.configure(site.files(site.place));
  SECTION("new files") {
    site.install(site.issue("second"), site.place);
    site.run_for(3 * conn::tls::ContextSource::kQuiet);
    REQUIRE(site.visit() == "second");
    REQUIRE(site.count("reloads") == 1);
  }
  SECTION("files that cannot be used, and new ones later") {
    std::ofstream(site.place / "tls.key") << "no key";
    site.run_for(3 * conn::tls::ContextSource::kQuiet);
    REQUIRE(site.visit() == "first");
    REQUIRE_THAT(site.complaint(), Contains("the old ones stay"));
    site.install(site.issue("second"), site.place);
    REQUIRE(site.after_reload(1) == "second");
  }
  SECTION("nothing") {
    site.run_for(3 * conn::tls::ContextSource::kQuiet);
    REQUIRE(site.visit() == "first");
    REQUIRE(site.count("reloads") == 0);
  }
  site.install(site.issue("third"), site.place);
  REQUIRE(site.after_reload(site.count("reloads") + 1) == "third");
}

TEST_CASE("tls watch: files that could not be used for a passing reason are tried again",
          "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.serve(site.place);
  REQUIRE(site.visit() == "first");
  site.install(site.issue("second"), site.place);
  {
    const NoNewDescriptors none;
    REQUIRE_THAT(site.complaint(), Contains("the old ones stay"));
  }
  REQUIRE(site.after_reload(1) == "second");
  REQUIRE(site.count("reload_failures") == 1);
}

TEST_CASE("tls watch: another change meanwhile does not stop them from being tried again",
          "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.serve(site.place);
  site.install(site.issue("second"), site.place);
  {
    const NoNewDescriptors none;
    CHECK_THAT(site.complaint(), Contains("the old ones stay"));
  }
  std::ofstream(site.place / "other") << "x";
  REQUIRE(site.after_reload(1) == "second");
  REQUIRE(site.count("reload_failures") == 1);
}

TEST_CASE("tls watch: files that another loop or a client could not use are tried again",
          "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  int told = 0;
  const auto note = [&](const conn::Failure&) { ++told; };
  site.server.configure(site.files(site.place));
  site.listener = site.listen();
  site.listener->on_refused(note);
  SECTION("the listener of another loop, one of which ends") {
    testing::AnyLoop beside(site.loop);
    conn::ListenerPtr other = site.server.listen(beside, conn::Endpoint::parse("tls://127.0.0.1:0"),
                                                 [](ConnectionPtr) {});
    other->on_refused(note);
    site.install(site.issue("second"), site.place);
    {
      const NoNewDescriptors none;
      site.run_for(3 * conn::tls::ContextSource::kQuiet);  // both have noticed the change
    }
    REQUIRE(told == 1);
    (GENERATE(false, true) ? other : site.listener).reset();
    RUN_UNTIL(site.loop, site.count("reloads") + site.count("reloads", beside) == 1);
    CHECK(site.count("reload_failures") + site.count("reload_failures", beside) == 1);
  }
  SECTION("a client of the same type") {
    site.install(site.issue("second"), site.place);
    std::this_thread::sleep_for(2 * conn::tls::ContextSource::kQuiet);
    const ConnectionPtr client = site.server.create(site.loop);
    {
      const NoNewDescriptors none;
      client->connect(site.listener->endpoints().front(), [](conn::Connection&) {});
      REQUIRE(site.count("reload_failures") == 1);
      site.run_for(2 * conn::tls::ContextSource::kQuiet);
    }
    RUN_UNTIL(site.loop, site.count("reloads") == 1);
  }
  CHECK(told <= 1);
  if (!site.listener) site.listener = site.listen();
  CHECK(site.visit() == "second");
}

TEST_CASE("tls watch: the handler of a report may destroy the listener", "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.serve(site.place);
  bool told = false;
  site.listener->on_refused([&](const conn::Failure&) {
    told = true;
    site.listener.reset();
  });
  fs::remove(site.place / "tls.key");
  RUN_UNTIL(site.loop, told);
  site.install(site.issue("second"), site.place);
  site.run_for(3 * conn::tls::ContextSource::kQuiet);
  REQUIRE(site.listener == nullptr);
}

TEST_CASE("tls watch: a pipe or a device in the place of a file is not opened", "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.serve(site.place);
  REQUIRE(site.visit() == "first");
  const fs::path key = site.place / "tls.key";
  fs::remove(key);
  SECTION("a pipe, which nobody writes") { REQUIRE(::mkfifo(key.c_str(), 0600) == 0); }
  SECTION("a device without an end") { fs::create_symlink("/dev/zero", key); }
  CHECK_THAT(site.complaint(), Contains("TLS files not read again, the old ones stay: option "
                                        "reload=auto: " +
                                        key.string() + " is neither a file nor a folder"));
  CHECK(site.visit() == "first");
  fs::remove(key);
  site.install(site.issue("second"), site.place);
  CHECK(site.after_reload(1) == "second");
}

TEST_CASE("tls watch: a client leaves a pipe in the place of a file alone", "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.serve(site.place, {{"reload", "no"}});
  const fs::path ca = site.place / "ca.pem";
  site.write(site.ca.cert(), ca);
  std::this_thread::sleep_for(2 * conn::tls::ContextSource::kQuiet);
  const Options trusting{{"ca", ca.string()}, {"reload", "auto"}};
  REQUIRE(site.visit(trusting) == "first");
  fs::remove(ca);
  REQUIRE(::mkfifo(ca.c_str(), 0600) == 0);
  std::this_thread::sleep_for(2 * conn::tls::ContextSource::kQuiet);
  CHECK(site.visit(trusting) == "first");
}

TEST_CASE("tls watch: a pipe in the place of a file that was never needed is an error",
          "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.server.configure(site.files(site.place));
  site.listener = site.listen();  // reads what a server needs
  fs::remove(site.place / "tls.key");
  REQUIRE(::mkfifo((site.place / "tls.key").c_str(), 0600) == 0);
  const conn::ConnectionPtr client = site.server.create(site.loop);
  client->connect(site.listener->endpoints().front(), [](conn::Connection&) {});
  RUN_UNTIL(site.loop, client->state() != conn::State::kConnecting);
  CHECK(client->state() == conn::State::kError);
  CHECK_THAT(client->last_error(), Contains("neither a file nor a folder"));
}

TEST_CASE("tls watch: a listener on a context that was kept begins with files of now",
          "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  site.serve(site.place);
  REQUIRE(site.visit() == "first");
  site.listener.reset();
  site.install(site.issue("second"), site.place);
  std::this_thread::sleep_for(2 * conn::tls::ContextSource::kQuiet);
  site.serve(site.place);
  CHECK(site.visit() == "second");
}

TEST_CASE("tls watch: a child of fork() that goes on with the loop takes nothing from its parent",
          "[tls][reload]") {
  WatchSite site;
  const Identity even = site.issue("even"), odd = site.issue("odd");
  site.install(even, site.place);
  site.serve(site.place);
  REQUIRE(site.visit() == "even");
  int over[2];  // closed by the parent after the last renewal
  REQUIRE(pipe2(over, O_NONBLOCK | O_CLOEXEC) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(60 * testing::slower());
    int status = 99;
    try {
      close(over[1]);
      site.loop.after_fork();
      site.listener->pause();  // the parent accepts
      for (char byte = 0; read(over[0], &byte, 1) != 0;)
        (void)site.loop.process_events(ae::kFullIteration | ae::kDontWait);
      site.listener->resume();
      status = site.visit() == "odd" ? 0 : 1;
    } catch (...) {
    }
    _exit(status);
  }
  close(over[0]);
  for (std::uint64_t i = 1; i <= 5; ++i) {
    site.install(i % 2 == 0 ? even : odd, site.place);
    RUN_UNTIL(site.loop, site.count("reloads") == i);
  }
  CHECK(site.visit() == "odd");
  close(over[1]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  CHECK(status == 0);
}

TEST_CASE("tls watch: no path does any harm", "[tls][reload]") {
  conn::tls::FileWatch watch;
  const testing::TempFolder folder;
  std::string long_name = folder.path();
  for (int i = 0; i < 60; ++i) long_name += "/" + std::string(100, 'x');
  // Links in a circle, names that are too long, a file where a folder should be.
  fs::create_symlink("loop", folder.path() + "/loop");
  std::ofstream(folder.path() + "/file") << "x";
  REQUIRE_NOTHROW(watch.follow({folder.path() + "/loop", folder.path() + "/file/below", long_name,
                                "", "/", "relative", folder.path() + "/../.."}));
  watch.drain();
  std::ofstream(folder.path() + "/file") << "y";
  REQUIRE(watch.drain());
  REQUIRE_FALSE(watch.drain());
  watch.follow({});
  std::ofstream(folder.path() + "/file") << "z";
  REQUIRE_FALSE(watch.drain());
}

TEST_CASE("tls watch: without a descriptor to watch with, the error says which limits to raise",
          "[tls][reload]") {
  WatchSite site;
  site.install(site.issue("first"), site.place);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  std::string said = "nothing";
  std::error_code code;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  try {
    const conn::tls::FileWatch watch;
  } catch (const conn::Error& error) {
    said = error.what();
    code = error.code();
  }
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(code == std::errc::too_many_files_open);
  REQUIRE_THAT(said, Contains("option reload=auto: watch files: Too many open files; raise the "
                              "limit fs.inotify.max_user_instances or ulimit -n"));
}

#endif  // AECONN_TLS
