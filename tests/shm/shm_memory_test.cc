// SPDX-License-Identifier: BSD-3-Clause
// The memories of shm: what a server accepts, and that afterwards nobody can change their size,
// punch holes or write where they may not.

#include <sys/resource.h>
#include <sys/wait.h>

#include <cstring>
#include <fstream>

#include "tests/shm/shm_kit.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Failure;
using conn::shm::ChannelPtr;
using conn::shm::kPage;
using conn::shm::Offer;
using conn::tcp::Fd;
using testing::Contains;
using testing::kSealAll;
using testing::kSealSize;
using testing::memory;

namespace {

constexpr std::size_t kRing = 64 << 10;

ChannelPtr accept(const Fd& client, const Fd& server, Failure& why) {
  return conn::shm::accept_memories(client, kRing, server, kRing, why);
}

std::string refusal(const Fd& client, const Fd& server) {
  Failure why;
  REQUIRE(client);
  REQUIRE(server);
  CHECK(accept(client, server, why) == nullptr);
  return why.text;
}

/// Runs `body` in a child; returns its exit status, or minus the signal.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(body());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

TEST_CASE("shm: what a client offers a server accepts, and bytes pass", "[shm][shm-memory]") {
  const std::size_t before = testing::count_descriptors();
  {
    Offer offer = conn::shm::make_memories(kRing);
    INFO(offer.failure.text);
    REQUIRE(offer.channel);
    Failure why;
    const ChannelPtr server = accept(offer.client, offer.server, why);
    INFO(why.text);
    REQUIRE(server);
    const auto none = [] {};
    char byte = 0;
    CHECK(offer.channel->writer.put("x", 1, none) == 1);
    offer.channel->writer.publish(none);
    CHECK(server->reader.get(&byte, 1, none) == 1);
    CHECK(server->writer.put("y", 1, none) == 1);
    server->writer.publish(none);
    CHECK(offer.channel->reader.get(&byte, 1, none) == 1);
    CHECK(byte == 'y');

    SECTION("nobody can change either memory through its descriptor") {
      for (const Fd* const fd : {&offer.client, &offer.server}) {
        const auto size = static_cast<off_t>(kPage + kRing);
        CHECK(ftruncate(fd->get(), 0) != 0);
        CHECK(ftruncate(fd->get(), 2 * size) != 0);
        CHECK(fallocate(fd->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size) != 0);
        CHECK(write(fd->get(), "x", 1) != 1);
        CHECK(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0) == MAP_FAILED);
        CHECK(fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
      }
    }
  }
  CHECK(testing::count_descriptors() == before);
}

TEST_CASE("shm: memories that break a rule are refused", "[shm][shm-memory][hostile]") {
  const Fd good = memory(kRing, kSealAll), open = memory(kRing, kSealSize);
  Failure why;
  REQUIRE(accept(good, open, why));
  const Fd fresh = memory(kRing, kSealSize);
  CHECK_THAT(refusal(memory(kRing, F_SEAL_SHRINK), fresh), Contains("size"));
  CHECK_THAT(refusal(memory(kRing, 0), fresh), Contains("size"));
  CHECK_THAT(refusal(good, memory(kRing, F_SEAL_GROW)), Contains("size"));
  // The server could not seal it, and the client could punch holes later.
  CHECK_THAT(refusal(good, memory(kRing, kSealSize | F_SEAL_SEAL)), Contains("seal"));
  CHECK_THAT(refusal(memory(kRing, kSealSize), fresh), Contains("not sealed"));
  CHECK_THAT(refusal(memory(kRing, kSealAll, false), fresh), Contains("holes"));
  CHECK_THAT(refusal(good, memory(kRing, kSealSize, false)), Contains("holes"));
  // Pages beyond the end do not replace those that are missing before it.
  const auto beyond = [](int seals) {
    Fd fd = memory(kRing, 0, false);
    const auto size = static_cast<off_t>(kPage + kRing);
    REQUIRE(fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, size, size) == 0);
    REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
    return fd;
  };
  CHECK_THAT(refusal(beyond(kSealAll), fresh), Contains("holes"));
  CHECK_THAT(refusal(good, beyond(kSealSize)), Contains("holes"));
  CHECK_THAT(refusal(memory(2 * kRing, kSealAll), fresh), Contains("another size"));
  CHECK_THAT(refusal(good, memory(kRing / 2, kSealSize)), Contains("another size"));
}

TEST_CASE("shm: descriptors of other kinds are refused", "[shm][shm-memory][hostile]") {
  const Fd good = memory(kRing, kSealAll), open = memory(kRing, kSealSize);
  const testing::TempFolder folder;
  const std::string place =
      GENERATE(as<std::string>{}, "file", "/dev/shm/aeconn-test", "/dev/null");
  const std::string path = place == "file" ? folder.path() + "/file" : place;
  const Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(file);
  if (path != "/dev/null") {
    REQUIRE(fallocate(file.get(), 0, 0, static_cast<off_t>(kPage + kRing)) == 0);
    (void)unlink(path.c_str());
  }
  CHECK_FALSE(refusal(file, open).empty());
  CHECK_FALSE(refusal(good, file).empty());
  const testing::SocketPair sockets;
  CHECK_FALSE(refusal(sockets.one, open).empty());
}

TEST_CASE("shm: a limit on file sizes is an error, not the end of the process",
          "[shm][shm-memory]") {
  CHECK(in_child([] {
          const rlimit limit{4096, 4096};
          setrlimit(RLIMIT_FSIZE, &limit);
          const Offer offer = conn::shm::make_memories(kRing);
          return !offer.channel && offer.failure.text.find("ulimit -f") != std::string::npos ? 0
                                                                                             : 1;
        }) == 0);
}

TEST_CASE("shm: without descriptors or address space there is an error", "[shm][shm-memory]") {
  CHECK(in_child([] {
          const rlimit limit{3, 3};
          setrlimit(RLIMIT_NOFILE, &limit);
          return !conn::shm::make_memories(kRing).channel ? 0 : 1;
        }) == 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(in_child([] {
          std::size_t pages = 0;
          std::ifstream("/proc/self/statm") >> pages;
          const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
          const rlimit limit{pages * page + (1 << 18), pages * page + (1 << 18)};
          setrlimit(RLIMIT_AS, &limit);
          return !conn::shm::make_memories(16 << 20).channel ? 0 : 1;
        }) == 0);
#endif
}

TEST_CASE("shm: a child of fork() does not have the memories", "[shm][shm-memory]") {
  std::optional<Offer> offer(conn::shm::make_memories(kRing));
  REQUIRE(offer->channel);
  // What the child has mapped at the same place must stay when the child drops the channel.
  CHECK(in_child([&] {
          offer->channel.reset();
          return 0;
        }) == 0);
  CHECK(offer->channel->writer.put("x", 1, [] {}) == 1);
}
