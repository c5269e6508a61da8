// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/resolver.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

namespace conn::inline AECONN_ABI {
namespace {

class ResolverCategory final : public std::error_category {
 public:
  const char* name() const noexcept override { return "resolver"; }
  std::string message(int code) const override { return gai_strerror(code); }
  std::error_condition default_error_condition(int code) const noexcept override {
    if (code == EAI_MEMORY) return std::errc::not_enough_memory;
    return std::errc::host_unreachable;  // what an errno can say about an unknown host
  }
};

const ResolverCategory& resolver_category() {
  static const ResolverCategory category;
  return category;
}

const in6_addr* v4_mapped_tail(const SocketAddress& address, in_addr& out) {
  if (address.family() == AF_INET) {
    out = reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr;
    return nullptr;
  }
  const auto* six = &reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(six)) return six;
  std::memcpy(&out, six->s6_addr + 12, sizeof out);
  return nullptr;
}

SocketAddress any_address(int family, std::uint16_t port) {
  SocketAddress any;
  if (family == AF_INET) {
    auto* four = reinterpret_cast<sockaddr_in*>(any.get());
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    any.size = sizeof *four;
  } else {
    auto* six = reinterpret_cast<sockaddr_in6*>(any.get());
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    any.size = sizeof *six;
  }
  return any;
}

/// getaddrinfo() and its answer as ours. No AI_ADDRCONFIG: it does not count loopback addresses,
/// so "localhost" would lose ::1 on a machine whose only IPv6 address that is. Addresses that
/// cannot be reached come last by RFC 6724 and fail at once when they are tried.
Resolved look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int rc = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  const int err = errno;
  Resolved result;
  if (rc == 0) {
    for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
      if (item->ai_family != AF_INET && item->ai_family != AF_INET6) continue;
      SocketAddress address;
      std::memcpy(&address.storage, item->ai_addr, item->ai_addrlen);
      address.size = item->ai_addrlen;
      const auto same = [&](const SocketAddress& other) {
        return other.size == address.size &&
               std::memcmp(&other.storage, &address.storage, address.size) == 0;
      };
      // /etc/hosts often names a host twice.
      if (std::none_of(result.addresses.begin(), result.addresses.end(), same)) {
        result.addresses.push_back(address);
      }
    }
    freeaddrinfo(list);
  }
  if (result.addresses.empty()) {
    const std::string what = "resolve " + host;
    if (rc == EAI_SYSTEM) {
      result.failure = errno_failure(err, what);
    } else {
      const std::error_code code(rc != 0 ? rc : EAI_NONAME, resolver_category());
      result.failure = {code, what + ": " + code.message()};
    }
  }
  return result;
}

/// What needs no lookup: wildcards, numbers, and what is wrong with them. Empty for a name.
std::optional<Resolved> resolve_at_once(const std::string& host, std::uint16_t port, bool passive) {
  if (host == "*") {
    Resolved result;
    if (passive) {
      result.addresses.push_back(any_address(AF_INET, port));
    } else {
      result.failure = errno_failure(EINVAL, "* is an address to listen on, not to connect to");
    }
    return result;
  }
  if (host.empty() || host.find('\0') != std::string::npos) {
    return Resolved{{}, errno_failure(EINVAL, "resolve an empty host name")};
  }
  SocketAddress numeric;
  if (!numeric_address(host, port, numeric)) return std::nullopt;
  return Resolved{{numeric}, {}};
}

// --- lookups on threads --------------------------------------------------------------------------

class Lookup;

/// One name to look up. The worker sees the request and the answer only; `owner` belongs to the
/// loop's thread, and so does everything the callback holds.
struct Job {
  std::string host;
  std::uint16_t port = 0;
  ae::Poster poster;
  std::atomic<bool> cancelled{false};
  Resolved result;
  Lookup* owner = nullptr;
};

class Lookup final : public Resolution {
 public:
  Lookup(std::shared_ptr<Job> job, std::function<void(Resolved)> done)
      : job_(std::move(job)), done_(std::move(done)) {
    job_->owner = this;
  }
  ~Lookup() override {
    job_->owner = nullptr;
    job_->cancelled.store(true, std::memory_order_relaxed);
  }
  static void deliver(Job& job) {
    if (job.owner == nullptr) return;
    // The callback may destroy the Lookup, so it runs from the stack.
    const std::function<void(Resolved)> done = std::move(job.owner->done_);
    job.owner->job_->owner = nullptr;
    done(std::move(job.result));
  }

 private:
  std::shared_ptr<Job> job_;
  std::function<void(Resolved)> done_;
};

/// A few threads that exist while there is something to look up. They are detached and hold the
/// pool by a shared pointer, so a program may end while a name server keeps one waiting.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  static Pool& instance() {
    // Never destroyed: fork handlers and threads may outlast the end of main().
    static const auto* const pool = [] {
      const auto* made = new std::shared_ptr<Pool>(std::make_shared<Pool>());
      the_pool = made->get();
      // A child of fork() has none of our threads: it starts with an empty pool.
      pthread_atfork([] { the_pool->mutex_.lock(); }, [] { the_pool->mutex_.unlock(); },
                     [] {
                       the_pool->threads_ = 0;
                       the_pool->jobs_.clear();
                       the_pool->mutex_.unlock();
                     });
      return made;
    }();
    return **pool;
  }

  void submit(std::shared_ptr<Job> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
    if (threads_ >= kMaxThreads) return;
    try {
      start_thread();
      ++threads_;
    } catch (const std::system_error& error) {
      if (threads_ > 0) return;  // one of those will get to it
      jobs_.pop_back();
      job->result.failure = errno_failure(error.code().value(), "start a thread to resolve names");
      answer(std::move(job));
    }
  }

 private:
  static constexpr int kMaxThreads = 4;
  static inline Pool* the_pool = nullptr;

  void start_thread() {
    // The program's signal handlers run on the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct Restore {
      const sigset_t& mask;
      ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
    } restore{before};
    std::thread([self = shared_from_this()] { self->work(); }).detach();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (!jobs_.empty()) {
      std::shared_ptr<Job> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      if (!job->cancelled.load(std::memory_order_relaxed)) {
        try {
          job->result = look_up(job->host, job->port, 0);
        } catch (const std::bad_alloc&) {
          job->result.addresses.clear();
          job->result.failure = out_of_memory();
        }
        answer_in_the_end(job);
      }
      job.reset();
      lock.lock();
    }
    --threads_;
  }

  // Somebody waits for it: without memory to say it in, it is said a little later.
  static void answer_in_the_end(const std::shared_ptr<Job>& job) {
    for (;;) {
      try {
        return answer(job);
      } catch (const std::bad_alloc&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  }

  static void answer(std::shared_ptr<Job> job) {
    const ae::Poster poster = job->poster;
    poster.post([job = std::move(job)] { Lookup::deliver(*job); });
  }

  std::mutex mutex_;
  std::deque<std::shared_ptr<Job>> jobs_;
  int threads_ = 0;
};

/// An answer that was there at once, delivered from the loop.
class Immediate final : public Resolution {
 public:
  Immediate(ae::EventLoop& loop, Resolved result, std::function<void(Resolved)> done)
      : loop_(loop), result_(std::move(result)), done_(std::move(done)) {
    timer_ = loop_.add_time_event(ae::Duration::zero(), [this] {
      timer_ = 0;
      // The callback may destroy this object, so both run from the stack.
      const std::function<void(Resolved)> call = std::move(done_);
      call(std::move(result_));
      return ae::kNoMore;
    });
  }
  ~Immediate() override {
    if (timer_ != 0) loop_.remove_time_event(timer_);
  }

 private:
  ae::EventLoop& loop_;
  Resolved result_;
  std::function<void(Resolved)> done_;
  ae::TimerId timer_ = 0;
};

}  // namespace

// --- SocketAddress -------------------------------------------------------------------------------

std::uint16_t SocketAddress::port() const noexcept {
  switch (family()) {
    case AF_INET:
      return ntohs(reinterpret_cast<const sockaddr_in*>(get())->sin_port);
    case AF_INET6:
      return ntohs(reinterpret_cast<const sockaddr_in6*>(get())->sin6_port);
    default:
      return 0;
  }
}

void SocketAddress::set_port(std::uint16_t port) noexcept {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(get())->sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(get())->sin6_port = htons(port);
}

std::string SocketAddress::host() const {
  if (family() == AF_INET) {  // the common one, at a tenth of getnameinfo's cost
    std::array<unsigned char, 4> bytes{};
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in*>(get())->sin_addr, bytes.size());
    return fmt::format("{}.{}.{}.{}", bytes[0], bytes[1], bytes[2], bytes[3]);
  }
  if (family() != AF_INET6) return {};
  char text[NI_MAXHOST];
  if (getnameinfo(get(), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}

std::string SocketAddress::to_string() const {
  if (family() == AF_UNIX) {
    const auto* local = reinterpret_cast<const sockaddr_un*>(get());
    constexpr std::size_t kOffset = offsetof(sockaddr_un, sun_path);
    if (size <= kOffset) return {};
    const std::size_t length = size - kOffset;
    if (local->sun_path[0] == '\0') return "@" + std::string(local->sun_path + 1, length - 1);
    return {local->sun_path, strnlen(local->sun_path, length)};
  }
  const std::string name = host();
  return name.empty() ? name : host_port(name, port());
}

bool SocketAddress::same_host(const SocketAddress& other) const noexcept {
  const auto is_inet = [](int family) { return family == AF_INET || family == AF_INET6; };
  if (!is_inet(family()) || !is_inet(other.family())) return false;
  in_addr ours{}, theirs{};
  const in6_addr* our_six = v4_mapped_tail(*this, ours);
  const in6_addr* their_six = v4_mapped_tail(other, theirs);
  if ((our_six == nullptr) != (their_six == nullptr)) return false;
  if (our_six != nullptr) return IN6_ARE_ADDR_EQUAL(our_six, their_six);
  return ours.s_addr == theirs.s_addr;
}

bool is_loopback(const SocketAddress& address) noexcept {
  if (address.family() != AF_INET && address.family() != AF_INET6) return false;
  in_addr four{};
  const in6_addr* six = v4_mapped_tail(address, four);
  return six != nullptr ? IN6_IS_ADDR_LOOPBACK(six) : (ntohl(four.s_addr) >> 24) == 127;
}

// --- resolving -----------------------------------------------------------------------------------

bool numeric_address(const std::string& host, std::uint16_t port, SocketAddress& out) {
  if (host.empty() || host.find('\0') != std::string::npos) return false;
  const Resolved numeric = look_up(host, port, AI_NUMERICHOST);
  if (numeric.failure) return false;
  out = numeric.addresses.front();
  return true;
}

Resolved resolve(const std::string& host, std::uint16_t port, bool passive) {
  if (std::optional<Resolved> result = resolve_at_once(host, port, passive)) return *result;
  return look_up(host, port, passive ? AI_PASSIVE : 0);
}

std::unique_ptr<Resolution> resolve_async(ae::EventLoop& loop, std::string host, std::uint16_t port,
                                          std::function<void(Resolved)> done) {
  assert(done);
  if (std::optional<Resolved> result = resolve_at_once(host, port, false)) {
    return std::make_unique<Immediate>(loop, std::move(*result), std::move(done));
  }
  auto job = std::make_shared<Job>();
  job->host = std::move(host);
  job->port = port;
  job->poster = loop.poster();
  auto lookup = std::make_unique<Lookup>(job, std::move(done));
  Pool::instance().submit(std::move(job));
  return lookup;
}

}  // namespace conn::inline AECONN_ABI
