// SPDX-License-Identifier: BSD-3-Clause
// The errno value that a failed set-up leaves, through the C interface.

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "c/aeconn.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

#if AECONN_TLS
#include "tests/support/certificates.h"
#endif

using namespace testing::c;
using testing::Contains;
using testing::TempFolder;

namespace {

/// The errno value of listening; 0 if that succeeds.
int listen_errno(aeconn_loop* loop, const std::string& url) {
  errno = 0;
  const Listener listener(aeconn_listen(
      loop, url.c_str(), [](void*, aeconn_conn* conn) { aeconn_close(conn); }, nullptr));
  const int err = errno;
  return listener != nullptr ? 0 : err;
}

/// The system calls that change the mode of a file by its name.
std::vector<long> mode_calls() {
  std::vector<long> calls{SYS_fchmodat, 452};  // 452: fchmodat2
#ifdef SYS_chmod
  calls.push_back(SYS_chmod);
#endif
  return calls;
}

/// Lets everybody use the folder.
void open_to_all(const TempFolder& folder) { REQUIRE(::chmod(folder.path().c_str(), 0777) == 0); }

}  // namespace

// --- the socket's file ---------------------------------------------------------------------------

TEST_CASE("C errno: a mode that cannot be set", "[c][errno][unix]") {
  const std::string scheme = GENERATE("unix", "shm");
  const TempFolder folder;
  const Loop loop(aeconn_loop_new());
  const std::string url = scheme + ":" + folder.path() + "/socket?mode=700";
  CHECK(listen_errno(loop.get(), url) == 0);
  const int err = testing::forked(
      [&] { return testing::forbid(mode_calls(), EROFS) ? listen_errno(loop.get(), url) : 255; });
  if (err == 255) WARN("this kernel has no filters of system calls");
  CHECK((err == EROFS || err == 255));
}

TEST_CASE("C errno: a group that the process may not give", "[c][errno][unix]") {
  const std::string scheme = GENERATE("unix", "shm");
  const TempFolder folder;
  open_to_all(folder);
  const Loop loop(aeconn_loop_new());
  const std::string url = scheme + ":" + folder.path() + "/socket?group=12345";
  CHECK(testing::forked([&] {
          return testing::become_nobody() ? listen_errno(loop.get(), url) : 255;
        }) == EPERM);
  CHECK(listen_errno(loop.get(), scheme + ":" + folder.path() + "/socket?group=no-such-group") ==
        EINVAL);
}

TEST_CASE("C errno: a socket that is in use, or cannot be looked at", "[c][errno][unix]") {
  const std::string scheme = GENERATE("unix", "shm");
  const TempFolder folder;
  open_to_all(folder);
  const Loop loop(aeconn_loop_new());
  const std::string url = scheme + ":" + folder.path() + "/socket";
  const Listener taken(aeconn_listen(
      loop.get(), url.c_str(), [](void*, aeconn_conn* conn) { aeconn_close(conn); }, nullptr));
  REQUIRE(taken != nullptr);
  CHECK(listen_errno(loop.get(), url) == EADDRINUSE);
  for (const unsigned left : {0U, 1U, 2U}) {  // for the socket; to lock the folder; to try it
    CAPTURE(left);
    const testing::FewDescriptors few(left);
    CHECK(listen_errno(loop.get(), url) == EMFILE);
    CHECK_THAT(aeconn_error(), Contains("Too many open files"));
  }
  REQUIRE(::chmod((folder.path() + "/socket").c_str(), 0) == 0);
  CHECK(testing::forked([&] {
          return testing::become_nobody() ? listen_errno(loop.get(), url) : 255;
        }) == EACCES);
  CHECK(listen_errno(loop.get(), scheme + ":" + folder.path()) == EADDRINUSE);  // no socket at all
}

// --- descriptors ---------------------------------------------------------------------------------

TEST_CASE("C errno: no descriptor for the signals of a graceful stop", "[c][errno]") {
  const Loop loop(aeconn_loop_new());
  const testing::NoNewDescriptors none;
  errno = 0;
  CHECK(aeconn_graceful_stop_new(loop.get(), nullptr, -1, nullptr) == nullptr);
  CHECK(errno == EMFILE);
  CHECK_THAT(aeconn_error(), Contains("signalfd"));
}

TEST_CASE("C errno: too few descriptors for a loop", "[c][errno]") {
  int failed = 0;
  for (unsigned left = 0;; ++left) {
    const testing::FewDescriptors few(left);
    errno = 0;
    const Loop loop(aeconn_loop_new());
    if (loop != nullptr && aeconn_descriptor(loop.get()) >= 0) break;
    CHECK(errno == EMFILE);
    ++failed;
  }
  CHECK(failed >= 2);
}

TEST_CASE("C errno: too few descriptors for a group of loops", "[c][errno]") {
  int failed = 0;
  for (unsigned left = 0;; ++left) {
    const testing::FewDescriptors few(left);
    errno = 0;
    const Group group(aeconn_group_new(2, "few", 0));
    if (group != nullptr) break;
    CHECK(errno == EMFILE);
    ++failed;
  }
  CHECK(failed >= 2);
}

TEST_CASE("C errno: a descriptor that is none", "[c][errno]") {
  const Loop loop(aeconn_loop_new());
  errno = 0;
  CHECK(aeconn_adopt(loop.get(), "tcp", -1) == nullptr);
  CHECK(errno == EBADF);
  CHECK(aeconn_listen_on(
            loop.get(), "tcp", -1, "", [](void*, aeconn_conn*) {}, nullptr) == nullptr);
  CHECK(errno == EBADF);
}

// --- files of TLS --------------------------------------------------------------------------------

#if AECONN_TLS

namespace {

struct Files {
  TempFolder folder;
  testing::Authority ca{folder};
  testing::Identity identity = ca.issue({.common_name = "server", .names = {"IP:127.0.0.1"}});
  Loop loop{aeconn_loop_new()};

  /// Options of which `key` names `file`.
  std::string options(const std::string& key, const std::string& file) const {
    std::string all = key + "=" + file;
    if (key != "cert") all += "&cert=" + identity.chain;
    if (key != "key") all += "&key=" + identity.key;
    if (key == "ca" || key == "ca-dir") all += "&auth-clients=yes";
    if (key == "crl") all += "&auth-clients=yes&ca=" + ca.cert();
    return all;
  }
  std::string url(const std::string& key, const std::string& file) const {
    return "tls://127.0.0.1:0?" + options(key, file);
  }
};

}  // namespace

TEST_CASE("C errno: a file of TLS that is missing, a folder, or cannot be opened",
          "[c][errno][tls]") {
  const Files files;
  const std::string key = GENERATE(as<std::string>{}, "cert", "key", "ca", "ca-dir", "crl",
                                   "dh-params", "key-pass-file");
  CAPTURE(key);
  aeconn_loop* const loop = files.loop.get();
  const std::string missing = files.url(key, "/nowhere/x.pem");
  CHECK(listen_errno(loop, missing) == ENOENT);
  CHECK_THAT(aeconn_error(), Contains("/nowhere/x.pem"));
  errno = 0;
  CHECK(aeconn_prepare_url(missing.c_str()) == -1);
  CHECK(errno == ENOENT);
  errno = 0;
  CHECK(aeconn_configure("tls", files.options(key, "/nowhere/x.pem").c_str()) == -1);
  CHECK(errno == ENOENT);
  if (key == "ca-dir") {
    CHECK(listen_errno(loop, files.url(key, files.ca.cert())) == ENOTDIR);
    return;
  }
  CHECK(listen_errno(loop, files.url(key, files.folder.path())) == EISDIR);
  // The file is there, and has something else in it.
  if (key != "key-pass-file") CHECK(listen_errno(loop, files.url(key, "/dev/null")) == EINVAL);
}

TEST_CASE("C errno: a file of TLS that the process may not read", "[c][errno][tls]") {
  const Files files;
  open_to_all(files.folder);
  const std::string secret = testing::write_file(files.folder, "secret.pem", "secret\n");
  REQUIRE(::chmod(secret.c_str(), 0) == 0);
  for (const std::string& open : {files.identity.chain, files.identity.key, files.ca.cert()})
    REQUIRE(::chmod(open.c_str(), 0444) == 0);
  for (const char* key : {"cert", "key", "ca", "crl", "dh-params", "key-pass-file"}) {
    CAPTURE(key);
    CHECK(testing::forked([&] {
            return testing::become_nobody() ? listen_errno(files.loop.get(), files.url(key, secret))
                                            : 255;
          }) == EACCES);
  }
}

TEST_CASE("C errno: a client's file of TLS that is missing", "[c][errno][tls]") {
  const Files files;
  aeconn_loop* const loop = files.loop.get();
  const std::string url = "tls://127.0.0.1:1?ca=/nowhere/x.pem";
  errno = 0;
  CHECK(Conn(aeconn_connect_wait(loop, url.c_str(), kSecond)) == nullptr);
  CHECK(errno == ENOENT);
  bool done = false;
  const Conn conn(aeconn_connect(
      loop, url.c_str(), [](void* self, aeconn_conn*) { *static_cast<bool*>(self) = true; },
      &done));
  REQUIRE(conn != nullptr);
  until(loop, [&] { return done; });
  CHECK(aeconn_last_errno(conn.get()) == ENOENT);
}

TEST_CASE("C errno: no descriptor for a file of TLS", "[c][errno][tls]") {
  const Files files;
  const testing::NoNewDescriptors none;
  for (const char* key : {"cert", "key-pass-file"}) {
    CAPTURE(key);
    CHECK(listen_errno(files.loop.get(), files.url(key, files.identity.chain)) == EMFILE);
  }
}

TEST_CASE("C errno: why sent bytes were not handed on", "[c][errno][tls]") {
  const Files files;
  aeconn_loop* const loop = files.loop.get();
  Conn server;
  const Listener listener(aeconn_listen(
      loop, files.url("cert", files.identity.chain).c_str(),
      [](void* to, aeconn_conn* conn) { static_cast<Conn*>(to)->reset(conn); }, &server));
  INFO(aeconn_error());
  REQUIRE(listener != nullptr);
  const std::string url = aeconn_listener_url(listener.get(), 0);
  const Conn client(aeconn_connect(loop, (url.substr(0, url.find('?')) + "?verify=no").c_str(),
                                   nullptr, nullptr));
  REQUIRE(client != nullptr);
  until(loop,
        [&] { return server != nullptr && aeconn_get_state(client.get()) == AECONN_CONNECTED; });
  // More than fits on the way to a client that reads nothing.
  const std::vector<char> bytes(std::size_t{32} << 20);
  int error = -1;
  aeconn_outgoing out{};
  out.bytes = bytes.data();
  out.size = bytes.size();
  out.release = [](aeconn_outgoing* its, int why) { *static_cast<int*>(its->context) = why; };
  out.context = &error;
  REQUIRE(aeconn_send(server.get(), &out) == static_cast<ssize_t>(bytes.size()));
  for (int i = 0; i < 20; ++i) REQUIRE(aeconn_turn(loop, 0) >= 0);
  Reader reader(server.get());
  REQUIRE(::shutdown(aeconn_fd(client.get()), SHUT_WR) == 0);  // without close_notify
  until(loop, [&] { return reader.over() && error != -1; });
  CHECK(reader.error == ECONNRESET);
  CHECK(error == ECONNRESET);
}

#endif  // AECONN_TLS
