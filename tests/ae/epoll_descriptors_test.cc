// SPDX-License-Identifier: BSD-3-Clause
// EpollDescriptors: what an epoll instance reports of the loop's own descriptors, and when.

#include "ae/epoll/epoll_descriptors.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <system_error>

#include "tests/support/catch.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/pass_descriptors.h"

using ae::EpollDescriptors;

namespace {

bool readable(int fd, int milliseconds = 0) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, milliseconds) == 1;
}

/// What the epoll instance reports now: w for work, a for the alarm, o for others.
std::string events(int epoll) {
  std::array<epoll_event, 8> room;
  const int count = ::epoll_wait(epoll, room.data(), static_cast<int>(room.size()), 0);
  REQUIRE(count >= 0);
  std::string all;
  for (const epoll_event& each : std::span(room).first(static_cast<std::size_t>(count))) {
    all += EpollDescriptors::is_work(each) ? 'w' : EpollDescriptors::is_alarm(each) ? 'a' : 'o';
  }
  return all;
}

void expire(int alarm) {
  itimerspec soon{};
  soon.it_value.tv_nsec = 1;
  REQUIRE(::timerfd_settime(alarm, 0, &soon, nullptr) == 0);
}

}  // namespace

TEST_CASE("epoll descriptors: wake() is reported once, again after each call", "[ae]") {
  EpollDescriptors own;
  REQUIRE(events(own.epoll()).empty());
  for (int round = 0; round < 3; ++round) {
    own.wake();
    own.wake();
    REQUIRE(events(own.epoll()) == "o");
    REQUIRE(events(own.epoll()).empty());
  }
}

TEST_CASE("epoll descriptors: the alarm is opened once, and each expiry is reported once", "[ae]") {
  EpollDescriptors own;
  REQUIRE(own.alarm() == -1);
  own.open_alarm();
  const int alarm = own.alarm();
  REQUIRE(alarm >= 0);
  REQUIRE_FALSE(own.for_host());
  for (int round = 0; round < 3; ++round) {
    expire(alarm);
    REQUIRE(readable(own.epoll(), 10'000));
    REQUIRE(events(own.epoll()) == "a");
    REQUIRE(events(own.epoll()).empty());
    own.open_alarm();
    REQUIRE(own.alarm() == alarm);
  }
  SECTION("a host has the same") {
    own.open_for_host();
    REQUIRE(own.alarm() == alarm);
  }
}

TEST_CASE("epoll descriptors: work is reported as long as there is some", "[ae]") {
  EpollDescriptors own;
  REQUIRE_FALSE(own.for_host());
  own.open_for_host();
  REQUIRE(own.for_host());
  REQUIRE(own.alarm() >= 0);
  REQUIRE_FALSE(own.shows_work());
  REQUIRE(events(own.epoll()).empty());
  for (int round = 0; round < 3; ++round) {
    own.show_work(true);
    own.show_work(true);
    REQUIRE(own.shows_work());
    REQUIRE(events(own.epoll()) == "w");
    REQUIRE(events(own.epoll()) == "w");
    own.show_work(false);
    REQUIRE_FALSE(own.shows_work());
    REQUIRE(events(own.epoll()).empty());
  }
}

TEST_CASE("epoll descriptors: what the kernel refused is not said to be shown", "[ae]") {
  EpollDescriptors own;
  own.show_work(true);  // without open_for_host(), the kernel knows no such descriptor
  REQUIRE_FALSE(own.shows_work());
}

TEST_CASE("epoll descriptors: a child of fork() has an epoll instance of its own", "[ae][fork]") {
  EpollDescriptors own;
  own.open_for_host();
  own.show_work(true);
  own.wake();
  const int number = own.epoll();
  const int parents = ::dup(number);  // what the parent has, after a fork()
  own.after_fork();
  REQUIRE(own.epoll() == number);
  REQUIRE((::fcntl(number, F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE(own.alarm() == -1);
  REQUIRE_FALSE(own.for_host());
  REQUIRE_FALSE(own.shows_work());
  REQUIRE(events(own.epoll()).empty());
  (void)events(parents);
  own.wake();
  REQUIRE(events(own.epoll()) == "o");
  REQUIRE(events(parents).empty());
  own.open_for_host();
  own.show_work(true);
  REQUIRE(events(own.epoll()) == "w");
  REQUIRE(events(parents).empty());
  expire(own.alarm());
  REQUIRE(readable(own.alarm(), 10'000));
  own.show_work(false);
  REQUIRE(events(own.epoll()) == "a");
  ::close(parents);
}

TEST_CASE("epoll descriptors: without descriptors, nothing is half open", "[ae]") {
  EpollDescriptors own;
  const std::size_t before = testing::count_descriptors();
  int failed = 0;
  {
    const testing::NoNewDescriptors none;
    for (const auto step : {0, 1, 2, 3}) {
      try {
        if (step == 0) EpollDescriptors();
        if (step == 1) own.open_alarm();
        if (step == 2) own.open_for_host();
        if (step == 3) own.after_fork();
      } catch (const std::system_error& error) {
        failed += error.code() == std::errc::too_many_files_open ? 1 : 100;
      }
    }
  }
  REQUIRE(failed == 4);
  REQUIRE(own.alarm() == -1);
  REQUIRE_FALSE(own.for_host());
  REQUIRE(testing::count_descriptors() == before);
  own.wake();
  REQUIRE(events(own.epoll()) == "o");
  own.open_for_host();
  own.show_work(true);
  REQUIRE(events(own.epoll()) == "w");
}
