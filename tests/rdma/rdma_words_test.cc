// SPDX-License-Identifier: BSD-3-Clause
// The error texts for users: each event of rdma_cm in each phase has a text.
#if AECONN_RDMA

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/memory.h"
#include "conn/rdma/protocol/phase.h"
#include "tests/support/catch.h"

using conn::rdma::CmEvent;
using testing::Contains;

namespace {

std::string words(rdma_cm_event_type type, int status, std::string_view private_data = {}) {
  CmEvent event{};
  event.type = type;
  event.status = status;
  event.private_data_size = private_data.size();
  for (std::size_t i = 0; i < private_data.size(); ++i)
    event.private_data.at(i) = static_cast<std::byte>(private_data[i]);
  return conn::rdma::describe(event);
}

}  // namespace

TEST_CASE("rdma words: every event of rdma_cm says what happened and why", "[rdma]") {
  CHECK_THAT(words(RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT), Contains("no answer from the address"));
  CHECK_THAT(words(RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH),
             Contains("cannot be reached") && Contains("No route to host"));
  CHECK_THAT(words(RDMA_CM_EVENT_ROUTE_ERROR, -EINVAL),
             Contains("no RDMA route") && Contains("Invalid argument"));
  CHECK_THAT(words(RDMA_CM_EVENT_CONNECT_ERROR, 5),
             Contains("could not be set up") && Contains("status 5"));
  CHECK_THAT(words(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT), Contains("does not answer"));
  CHECK_THAT(words(RDMA_CM_EVENT_REJECTED, 8), Contains("nobody listens there"));
  CHECK_THAT(words(RDMA_CM_EVENT_REJECTED, 28, "too many"),
             Contains("refused by the server") && Contains("too many"));
  CHECK_THAT(words(RDMA_CM_EVENT_REJECTED, 28, " a ~ b "), Contains("server:  a ~ b "));
  CHECK_THAT(words(RDMA_CM_EVENT_REJECTED, 28, std::string_view("ok\x01\x02", 4)),
             Contains("refused by the server"));
  CHECK_THAT(words(RDMA_CM_EVENT_REJECTED, 10), Contains("reject reason 10"));
  CHECK_THAT(words(RDMA_CM_EVENT_REJECTED, 11), Contains("reject reason 11"));
  CHECK_THAT(words(RDMA_CM_EVENT_REJECTED, -ECONNREFUSED, "too many"),  // iWARP
             Contains("Connection refused") && Contains("too many"));
  CHECK_THAT(words(RDMA_CM_EVENT_DEVICE_REMOVAL, 0), Contains("device was removed"));
  CHECK_THAT(words(RDMA_CM_EVENT_ADDR_CHANGE, 0), Contains("address") && Contains("changed"));
  CHECK_FALSE(words(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0).empty());
}

TEST_CASE("rdma words: what a server says when it refuses is only repeated if it is text",
          "[rdma][hostile]") {
  const std::string said = words(RDMA_CM_EVENT_REJECTED, 28, "\x1b[31mred");
  CHECK(said.find('\x1b') == std::string::npos);
}

TEST_CASE("rdma words: a limit is named only where it was met", "[rdma]") {
  CHECK(conn::rdma::limit_hint(EINVAL, 0).empty());
  CHECK_THAT(conn::rdma::limit_hint(ENOMEM, 0), !Contains("max_map_count"));
}

TEST_CASE("rdma words: what could not be destroyed is counted", "[rdma]") {
  // In a child, since other tests check that this process has had no failure.
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::uint64_t before = conn::rdma::teardown_failures();
    conn::rdma::note_teardown_failure("ibv_destroy_nothing", EIO);
    _exit(conn::rdma::teardown_failures() == before + 1 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("rdma words: every phase has a name of its own", "[rdma]") {
  std::set<std::string> names;
  for (int phase = 0; phase <= static_cast<int>(conn::rdma::Phase::kDead); ++phase)
    names.insert(conn::rdma::to_string(static_cast<conn::rdma::Phase>(phase)));
  CHECK(names.size() == static_cast<std::size_t>(conn::rdma::Phase::kDead) + 1);
  CHECK(names.count("?") == 0);
}

#endif
