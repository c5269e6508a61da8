// SPDX-License-Identifier: BSD-3-Clause
// Minimum cost of an echo over shared memory: two processes, a ring in each direction, and a socket
// whose byte wakes the side that sleeps. Nothing is checked, since both sides are this program.
//
//   shm-echo [--spin] [--size BYTES] [--depth REQUESTS] [--requests NUMBER]
//
// Prints one line of JSON: the rate, the median latency, and each side's processor time.

#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "sockets.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kRing = 256 * 1024, kPiece = 8192;

/// A ring with its writer's and its reader's words, each in a line of the cache of its own.
struct Ring {
  alignas(64) std::atomic<std::uint64_t> tail{0};
  alignas(64) std::atomic<std::uint64_t> head{0};
  alignas(64) std::atomic<std::uint32_t> reader_sleeps{0};
  alignas(64) std::atomic<std::uint32_t> writer_sleeps{0};
  alignas(4096) std::byte bytes[kRing];
};

struct Memory {
  Ring requests, replies;
  std::atomic<bool> over{false};
};

/// One side: reads from one ring and writes to the other one.
class Side {
 public:
  Side(Ring& in, Ring& out, int bell, bool spin) : in_(in), out_(out), bell_(bell), spin_(spin) {}

  std::size_t read(std::byte* to, std::size_t size) {
    const std::uint64_t head = in_.head.load(std::memory_order_relaxed);
    const std::size_t n = std::min<std::size_t>(size, in_.tail.load() - head);
    if (n == 0) return 0;
    const std::size_t at = head % kRing, straight = std::min(n, kRing - at);
    std::memcpy(to, in_.bytes + at, straight);
    std::memcpy(to + straight, in_.bytes, n - straight);
    in_.head.store(head + n);
    ring(in_.writer_sleeps);
    return n;
  }
  std::size_t write(const std::byte* from, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      const std::uint64_t tail = out_.tail.load(std::memory_order_relaxed);
      const std::size_t room = kRing - (tail - out_.head.load());
      const std::size_t n = std::min({size - done, room, kPiece});
      if (n == 0) break;
      const std::size_t at = tail % kRing, straight = std::min(n, kRing - at);
      std::memcpy(out_.bytes + at, from + done, straight);
      std::memcpy(out_.bytes, from + done + straight, n - straight);
      out_.tail.store(tail + n);
      ring(out_.reader_sleeps);
      done += n;
    }
    return done;
  }
  /// Waits for bytes, or also for room.
  void wait(bool for_room) {
    if (spin_) return __builtin_ia32_pause();
    in_.reader_sleeps.store(1);
    if (for_room) out_.writer_sleeps.store(1);
    const bool bytes = in_.tail.load() != in_.head.load(std::memory_order_relaxed);
    const bool room = out_.tail.load(std::memory_order_relaxed) - out_.head.load() < kRing;
    pollfd one{bell_, POLLIN, 0};
    if (!bytes && !(for_room && room)) (void)poll(&one, 1, 100);
    in_.reader_sleeps.store(0);
    out_.writer_sleeps.store(0);
    char bells[64];
    if (one.revents != 0) (void)!recv(bell_, bells, sizeof bells, MSG_DONTWAIT);
  }

 private:
  void ring(std::atomic<std::uint32_t>& sleeps) const {
    if (sleeps.load() == 0 || sleeps.exchange(0) == 0) return;
    (void)!send(bell_, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  Ring& in_;
  Ring& out_;
  const int bell_;
  const bool spin_;
};

void serve(Side side, const std::atomic<bool>& over) {
  std::vector<std::byte> kept(64 * 1024);
  std::size_t size = 0, gone = 0;
  while (!over.load(std::memory_order_relaxed)) {
    if (gone == size) {
      gone = 0;
      size = side.read(kept.data(), kept.size());
    }
    const std::size_t n = side.write(kept.data() + gone, size - gone);
    gone += n;
    if (n == 0) side.wait(gone != size);
  }
}

/// Returns the latencies in microseconds.
std::vector<double> ask(Side side, std::size_t size, std::size_t depth, std::size_t requests) {
  std::vector<std::byte> bytes(size, std::byte{'x'}), into(64 * 1024);
  std::vector<double> times;
  times.reserve(requests);
  std::vector<Clock::time_point> sent(depth);
  std::size_t asked = 0, written = 0, got = 0;
  while (times.size() < requests) {
    bool moved = false;
    while (asked < requests && asked - times.size() < depth) {
      if (written == 0) sent[asked % depth] = Clock::now();
      const std::size_t n = side.write(bytes.data() + written, size - written);
      if (n == 0) break;
      moved = true;
      written += n;
      if (written != size) continue;
      written = 0;
      ++asked;
    }
    got += side.read(into.data(), into.size());
    for (; got >= size; got -= size, moved = true) {
      const auto took = Clock::now() - sent[times.size() % depth];
      times.push_back(std::chrono::duration<double, std::micro>(took).count());
    }
    if (!moved) side.wait(written != 0);
  }
  return times;
}

double processor_us(int who) {
  rusage used{};
  getrusage(who, &used);
  const auto us = [](const timeval& t) { return 1e6 * double(t.tv_sec) + double(t.tv_usec); };
  return us(used.ru_utime) + us(used.ru_stime);
}

}  // namespace

int main(int argc, char** argv) try {
  bool spin = false;
  std::size_t size = 64, depth = 1, requests = 100'000;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--spin") {
      spin = true;
      continue;
    }
    std::size_t* const value = option == "--size"       ? &size
                               : option == "--depth"    ? &depth
                               : option == "--requests" ? &requests
                                                        : nullptr;
    if (value == nullptr || i + 1 == argc || (*value = std::stoul(argv[++i])) == 0) {
      std::fputs("usage: shm-echo [--spin] [--size N] [--depth N] [--requests N]\n", stderr);
      return 1;
    }
  }
  void* const shared = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("no memory");
  auto* const memory = new (shared) Memory;
  int bells[2];
  limits::required(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bells), "socketpair");
  const pid_t child = limits::required(fork(), "fork");
  if (child == 0) {
    serve(Side(memory->requests, memory->replies, bells[1], spin), memory->over);
    _exit(0);
  }
  const double before = processor_us(RUSAGE_SELF);
  const Clock::time_point begin = Clock::now();
  std::vector<double> times =
      ask(Side(memory->replies, memory->requests, bells[0], spin), size, depth, requests);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const double client = processor_us(RUSAGE_SELF) - before;
  memory->over = true;
  (void)!send(bells[0], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  waitpid(child, nullptr, 0);
  std::sort(times.begin(), times.end());
  const double number = double(requests);
  std::printf(
      "{\"requests\": %zu, \"rps\": %.0f, \"p50_us\": %.3f, \"p99_us\": %.3f, "
      "\"client_cpu_us\": %.3f, \"cpu_us\": %.3f}\n",
      requests, number / seconds, times[times.size() / 2], times[times.size() * 99 / 100],
      client / number, processor_us(RUSAGE_CHILDREN) / number);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "shm-echo: %s\n", error.what());
  return 1;
}
