// SPDX-License-Identifier: BSD-3-Clause
// The codes of set-up errors, and how counters take them.

#include <fcntl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "conn/error.h"
#include "conn/failure_kind.h"
#include "conn/tcp/tcp_type.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

#if AECONN_TLS
#include "tests/support/tls_kit.h"
#endif

using conn::Error;

TEST_CASE("error: without a cause there is no code, and EINVAL for a connection", "[conn][error]") {
  const Error error("option colour: there\nis none");
  CHECK_FALSE(error.code());
  const conn::Failure why(error);
  CHECK(why.code == std::errc::invalid_argument);
  CHECK(why.text == "option colour: there?is none");
}

TEST_CASE("error: the code of the cause stays", "[conn][error]") {
  const Error error = conn::errno_error(EMFILE, "open\ta file");
  CHECK(error.code() == std::error_code(EMFILE, std::generic_category()));
  CHECK(std::string(error.what()) == "open?a file: Too many open files");
  const Error copy = error;
  CHECK(copy.code() == error.code());
  CHECK(conn::Failure(copy).code == std::errc::too_many_files_open);
  CHECK(conn::Failure(copy).text == error.what());
}

TEST_CASE("error: a descriptor that cannot be taken over has its code", "[conn][error]") {
  testing::AnyLoop loop;
  const conn::tcp::TcpType tcp;
  const auto code_of = [&](int fd) {
    try {
      (void)tcp.adopt(loop, fd);
    } catch (const Error& error) {
      return error.code();
    }
    return std::make_error_code(std::errc::io_error);
  };
  CHECK(code_of(-1) == std::errc::bad_file_descriptor);
  const conn::tcp::Fd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  CHECK(code_of(file.get()) == std::errc::not_a_socket);
}

#if AECONN_TLS

TEST_CASE("error: a file that is missing is not counted as a peer that refuses",
          "[conn][error][tls]") {
  CHECK(conn::kind_of({ENOENT, std::generic_category()}) == conn::SkipReason::kRefused);
  testing::TlsSite site;
  const auto client = site.connect(*site.listen(), {{"ca", "/nowhere/ca.pem"}});
  REQUIRE(client->error_code() == std::errc::no_such_file_or_directory);
  CHECK(conn::kind_of(client->error_code()) == conn::SkipReason::kOther);
}

TEST_CASE("error: a limit on threads is the code for handshake-threads", "[conn][error][tls]") {
  enum Result { kRight, kWrong, kNoFilter };
  testing::TlsSite site;
  const int result = testing::forked([&] {
    if (!testing::forbid({SYS_clone, SYS_clone3}, EAGAIN)) return kNoFilter;
    try {
      (void)site.listen({{"handshake-threads", "2"}});
    } catch (const Error& error) {
      return error.code() == std::errc::resource_unavailable_try_again ? kRight : kWrong;
    }
    return kWrong;
  });
  if (result == kNoFilter) WARN("this kernel has no filters of system calls");
  CHECK((result == kRight || result == kNoFilter));
}

#endif  // AECONN_TLS
