// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Benchmarks of file events: descriptors that become ready, and toggled write interest.

#include <ev.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "ae/epoll_loop.h"
#include "bench/loop/sides.h"

namespace loop_bench {

struct Sockets {
  Sockets() {
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0, "socketpair");
    require(::write(ends[1], "x", 1) == 1, "write");
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() {
    for (const int fd : ends) ::close(fd);
  }
  void echo() const {
    char byte = 0;
    require(::read(ends[0], &byte, 1) == 1 && ::write(ends[1], &byte, 1) == 1, "echo");
  }
  std::array<int, 2> ends{};
};

/// Watched descriptors that never become ready.
struct Idle {
  explicit Idle(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      fds.push_back(::eventfd(0, EFD_NONBLOCK));
      require(fds.back() >= 0, "eventfd");
    }
  }
  Idle(const Idle&) = delete;
  Idle& operator=(const Idle&) = delete;
  ~Idle() {
    for (const int fd : fds) ::close(fd);
  }
  std::vector<int> fds;
};

struct Shape {
  std::size_t ready, idle;
  bool echo;
};

struct OurFiles : Ours {
  explicit OurFiles(Shape shape) : sockets(shape.ready), quiet(shape.idle) {
    for (const Sockets& one : sockets) {
      if (shape.echo) {
        loop.add_file_event(one.ends[0], ae::kReadable, [this, &one](int, ae::Mask) {
          ++count;
          one.echo();
        });
      } else {
        loop.add_file_event(one.ends[0], ae::kReadable, [this](int, ae::Mask) { ++count; });
      }
    }
    for (const int fd : quiet.fds) loop.add_file_event(fd, ae::kReadable, [](int, ae::Mask) {});
  }
  std::vector<Sockets> sockets;
  Idle quiet;
};

/// An EpollLoop hosted in another loop that waits with epoll on its one descriptor.
struct HostedFiles : OurFiles {
  explicit HostedFiles(Shape shape) : OurFiles(shape), host(::epoll_create1(EPOLL_CLOEXEC)) {
    require(host >= 0, "epoll_create1");
    epoll_event event{};
    event.events = EPOLLIN;
    require(::epoll_ctl(host, EPOLL_CTL_ADD, guest().descriptor(), &event) == 0, "epoll_ctl");
  }
  HostedFiles(const HostedFiles&) = delete;
  HostedFiles& operator=(const HostedFiles&) = delete;
  ~HostedFiles() override { ::close(host); }
  ae::EpollLoop& guest() { return static_cast<ae::EpollLoop&>(loop); }
  void iterate() override {
    epoll_event event{};
    require(::epoll_wait(host, &event, 1, -1) == 1, "epoll_wait");
    guest().dispatch();
  }
  int host;
};

struct LibevFiles : Libev {
  struct Watcher : ev_io {
    LibevFiles* side;
    Sockets sockets;
  };
  explicit LibevFiles(Shape shape) : watchers(shape.ready), quiet(shape.idle), idle(shape.idle) {
    for (Watcher& one : watchers) {
      one.side = this;
      const auto count_it = [](struct ev_loop*, ev_io* w, int) {
        ++static_cast<Watcher*>(w)->side->count;
      };
      const auto echo = [](struct ev_loop*, ev_io* w, int) {
        ++static_cast<Watcher*>(w)->side->count;
        static_cast<Watcher*>(w)->sockets.echo();
      };
      ev_io* const watcher = &one;
      if (shape.echo) {
        ev_io_init(watcher, echo, one.sockets.ends[0], EV_READ);
      } else {
        ev_io_init(watcher, count_it, one.sockets.ends[0], EV_READ);
      }
      ev_io_start(loop, watcher);
    }
    for (std::size_t i = 0; i < idle.size(); ++i) {
      ev_io_init(
          &idle[i], [](struct ev_loop*, ev_io*, int) {}, quiet.fds[i], EV_READ);
      ev_io_start(loop, &idle[i]);
    }
  }
  ~LibevFiles() override {
    for (Watcher& one : watchers) ev_io_stop(loop, &one);
    for (ev_io& one : idle) ev_io_stop(loop, &one);
  }
  std::vector<Watcher> watchers;
  Idle quiet;
  std::vector<ev_io> idle;
};

struct EpollFiles : Epoll {
  struct Watcher : Handler {
    EpollFiles* side;
    Sockets sockets;
  };
  explicit EpollFiles(Shape shape) : watchers(shape.ready), quiet(shape.idle) {
    for (Watcher& one : watchers) {
      one.side = this;
      if (shape.echo) {
        one.call = [](Handler& handler) {
          ++static_cast<Watcher&>(handler).side->count;
          static_cast<Watcher&>(handler).sockets.echo();
        };
      } else {
        one.call = [](Handler& handler) { ++static_cast<Watcher&>(handler).side->count; };
      }
      control(EPOLL_CTL_ADD, one.sockets.ends[0], EPOLLIN, one);
    }
    for (const int fd_of : quiet.fds) control(EPOLL_CTL_ADD, fd_of, EPOLLIN, nothing);
  }
  std::vector<Watcher> watchers;
  Idle quiet;
  Handler nothing{[](Handler&) {}};
};

// --- write interest toggled on each event
//  --------------------------------------------------------

struct OurToggle : Ours {
  OurToggle() {
    loop.add_file_event(sockets.ends[0], ae::kReadable | ae::kTrusted, [this](int fd, ae::Mask) {
      ++count;
      if ((loop.file_events(fd) & ae::kWritable) != 0) {
        loop.remove_file_event(fd, ae::kWritable);
      } else {
        loop.add_file_event(fd, ae::kWritable | ae::kTrusted, [](int, ae::Mask) {});
      }
    });
  }
  Sockets sockets;
};

struct LibevToggle : Libev {
  LibevToggle() {
    ev_io_init(
        &write, [](struct ev_loop*, ev_io*, int) {}, sockets.ends[0], EV_WRITE);
    ev_io_init(
        &read,
        [](struct ev_loop* its_loop, ev_io* w, int) {
          auto& self = *static_cast<LibevToggle*>(w->data);
          ++self.count;
          if (ev_is_active(&self.write)) {
            ev_io_stop(its_loop, &self.write);
          } else {
            ev_io_start(its_loop, &self.write);
          }
        },
        sockets.ends[0], EV_READ);
    read.data = this;
    ev_io_start(loop, &read);
  }
  ~LibevToggle() override {
    ev_io_stop(loop, &read);
    ev_io_stop(loop, &write);
  }
  Sockets sockets;
  ev_io read, write;
};

struct EpollToggle : Epoll, Handler {
  EpollToggle() {
    call = [](Handler& handler) {
      auto& self = static_cast<EpollToggle&>(handler);
      ++self.count;
      self.writing = !self.writing;
      self.control(EPOLL_CTL_MOD, self.sockets.ends[0], EPOLLIN | (self.writing ? EPOLLOUT : 0u),
                   self);
    };
    control(EPOLL_CTL_ADD, sockets.ends[0], EPOLLIN, *this);
  }
  Sockets sockets;
  bool writing = false;
};

}  // namespace loop_bench
