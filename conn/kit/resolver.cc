// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/resolver.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/vm_sockets.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ae/core/fork.h"
#include "ae/core/signals_off.h"
#include "ae/once.h"
#include "conn/kit/interruption.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

class ResolverCategory final : public std::error_category {
 public:
  const char* name() const noexcept override { return "resolver"; }
  std::string message(int code) const override { return gai_strerror(code); }
  std::error_condition default_error_condition(int code) const noexcept override {
    if (code == EAI_MEMORY) return std::errc::not_enough_memory;
    return std::errc::host_unreachable;  // the errno value that comes closest to "unknown host"
  }
};

const ResolverCategory& resolver_category() {
  return ae::once([] { return ResolverCategory(); });
}
// Creates the error category before main(), so that reporting a failure later needs no memory.
[[maybe_unused]] const ResolverCategory& resolver_category_made = resolver_category();

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

/// Calls getaddrinfo() and converts the result. AI_ADDRCONFIG is not set, because it ignores
/// loopback addresses: on a machine whose only IPv6 address is ::1, "localhost" would lose that
/// address. Addresses that cannot be reached do no harm: RFC 6724 puts them last, and connecting to
/// them fails immediately.
Resolved look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int rc = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  const int err = errno;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
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
      // /etc/hosts often lists a host twice, so duplicate addresses are dropped.
      if (std::none_of(result.addresses.begin(), result.addresses.end(), same)) {
        result.addresses.push_back(address);
      }
    }
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

/// Resolves a host for which no lookup of a name is needed: wildcards, numeric addresses, and
/// invalid hosts. Returns no value for a host name.
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

using Clock = std::chrono::steady_clock;

struct Job;

/// One caller's request for the addresses of a host name. The lookup's thread writes `result` and
/// then calls answered().
struct Request {
  explicit Request(std::uint16_t its_port) : port(its_port) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  virtual ~Request() = default;
  /// Notifies the caller that `result` has been written. Called on the lookup's thread. May throw
  /// std::bad_alloc, and is then called again.
  virtual void answered(const std::shared_ptr<Request>& self) = 0;

  const std::uint16_t port;
  // Says whether the request was made before fork(), in the parent process.
  const ae::MadeHere made_here{};
  Resolved result;
  // The lookup whose result this request waits for; guarded by the pool's mutex.
  std::weak_ptr<Job> job;
};

/// One lookup of a host name, shared by all requests for that name. Guarded by the pool's mutex,
/// except for the member `host`.
struct Job {
  explicit Job(std::string name) : host(std::move(name)) {}
  const std::string host;
  std::vector<std::shared_ptr<Request>> requests;
  ae::TimePoint began{};
};
using JobPtr = std::shared_ptr<Job>;

/// The threads that make lookups. They exist only while there are lookups, and are detached: a
/// program may end while a thread still waits for a name server.
class Pool {
 public:
  static Pool& instance() {
    return ae::once([] { return Pool(); });
  }

  Pool() { running_.reserve(kMostThreads); }

  /// Queues a request for a lookup of `host`. If no thread can be started for the lookup, answers
  /// the request with that failure before it returns.
  void submit(const std::string& host, const std::shared_ptr<Request>& request) {
    std::unique_lock lock(mutex_);
    forget_parent();
    JobPtr job = joinable(host);
    if (job == nullptr) {
      job = std::make_shared<Job>(host);
      job->requests.push_back(request);
      line_.push_back(job);
      request->job = job;
    } else {
      job->requests.push_back(request);
      request->job = job;
      return;
    }
    const int err = look_after_the_line();
    if (err == 0 || threads_ > 0) return;  // a lookup thread that already runs will serve the job
    line_.pop_back();
    lock.unlock();
    request->result.failure = errno_failure(err, "start a thread to resolve names");
    request->answered(request);
  }

  /// Cancels a request. The request may still receive its answer if the answer is being delivered
  /// at this moment.
  void leave(const Request& request) noexcept {
    if (request.made_here.inherited()) return;
    const std::lock_guard lock(mutex_);
    const JobPtr job = request.job.lock();
    if (job == nullptr) return;
    std::erase_if(job->requests, [&](const auto& each) { return each.get() == &request; });
    if (!job->requests.empty()) return;
    std::erase(line_, job);
    // A cancelled lookup does not count towards the limit kPlaces, so another lookup may start.
    changed_.notify_all();
  }

 private:
  // Limit on simultaneous lookups, apart from slow and cancelled ones.
  static constexpr int kPlaces = 4;
  // Limit on all simultaneous lookups, including slow and cancelled ones.
  static constexpr int kMostThreads = 64;
  static constexpr int kMostOfOneName = 8;
  // A lookup that takes longer than this waits for an unresponsive name server and uses no
  // processor, so it no longer counts towards the limit kPlaces.
  static constexpr ae::Duration kSlow = std::chrono::milliseconds(100);
  // A request does not join a lookup that began longer ago than this, because that lookup may have
  // begun while the network was down.
  static constexpr ae::Duration kFresh = std::chrono::seconds(2);

  /// Makes the pool empty in a child of fork(), where the parent's lookup threads do not exist,
  /// with a condition variable that no thread waits for. To be called with the mutex locked.
  void forget_parent() {
    if (!made_here_.inherited()) return;
    std::construct_at(&changed_);
    made_here_.renew();
    threads_ = 0;
    watched_ = false;
    line_.clear();
    running_.clear();
  }

  JobPtr joinable(const std::string& host) const {
    for (const JobPtr& job : line_)
      if (job->host == host) return job;
    JobPtr youngest;
    int count = 0;
    for (const JobPtr& job : running_) {
      if (job->host != host) continue;
      // Lookups are listed in the order of their start, so the last one is the youngest.
      youngest = job;
      ++count;
    }
    const bool fresh = youngest != nullptr && Clock::now() - youngest->began < kFresh;
    return fresh || count >= kMostOfOneName ? youngest : nullptr;
  }

  /// Starts a thread for the first job in the queue, if necessary. While as many lookups as allowed
  /// (kPlaces) are in progress, only one thread waits until another may start. Returns 0, or the
  /// errno of the failure to start a thread.
  int look_after_the_line() {
    if (line_.empty() || threads_ >= kMostThreads) return 0;
    if (watched_) {
      changed_.notify_all();
      return 0;
    }
    try {
      start_thread();
    } catch (const std::system_error& error) {
      return error.code().value();
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
    ++threads_;
    return 0;
  }

  void start_thread() {
    const ae::SignalsOff off;
    std::thread([this] { work(); }).detach();
  }

  /// Returns the earliest time at which another lookup may start; TimePoint::min(): it may start
  /// now.
  ae::TimePoint next_place() const noexcept {
    const ae::TimePoint now = Clock::now();
    int taken = 0;
    ae::TimePoint first = ae::TimePoint::max();
    for (const JobPtr& job : running_) {
      if (job->requests.empty() || now - job->began >= kSlow) continue;
      ++taken;
      first = std::min(first, job->began + kSlow);
    }
    return taken < kPlaces ? ae::TimePoint::min() : first;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (!line_.empty()) {
      if (const ae::TimePoint when = next_place(); when != ae::TimePoint::min()) {
        if (watched_) break;
        watched_ = true;
        changed_.wait_until(lock, when);
        watched_ = false;
        continue;
      }
      const JobPtr job = line_.front();
      line_.pop_front();
      job->began = Clock::now();
      running_.push_back(job);
      (void)look_after_the_line();
      lock.unlock();
      const Resolved found = look_up_surely(job->host);
      lock.lock();
      std::erase(running_, job);
      const std::vector<std::shared_ptr<Request>> requests = std::move(job->requests);
      job->requests.clear();
      changed_.notify_all();
      lock.unlock();
      for (const std::shared_ptr<Request>& request : requests) answer(request, found);
      lock.lock();
    }
    --threads_;
  }

  static Resolved look_up_surely(const std::string& host) noexcept {
    try {
      return look_up(host, 0, 0);
    } catch (const std::bad_alloc&) {
      return {{}, out_of_memory()};
    }
  }

  // Delivers the result of a lookup to a caller. If there is no memory for the delivery, tries
  // again every 10 ms until it succeeds, because the caller waits for the result.
  static void answer(const std::shared_ptr<Request>& request, const Resolved& found) {
    try {
      request->result = found;
      for (SocketAddress& each : request->result.addresses) each.set_port(request->port);
    } catch (const std::bad_alloc&) {
      request->result = {{}, out_of_memory()};
    }
    for (;;) {
      try {
        return request->answered(request);
      } catch (const std::bad_alloc&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  }

  ae::Mutex mutex_;
  ae::MadeHere made_here_;
  std::condition_variable_any changed_;  // signalled when another lookup may be able to start
  std::deque<JobPtr> line_;
  std::vector<JobPtr> running_;  // the lookups in progress, in the order of their start
  int threads_ = 0;
  bool watched_ = false;  // true if a thread waits until the next lookup may start
};

class Lookup;
/// A request that a loop has made. `owner`, and what the callback owns, may be used only on the
/// loop's thread.
struct LoopRequest final : Request {
  LoopRequest(std::uint16_t its_port, ae::Poster its_poster)
      : Request(its_port), poster(std::move(its_poster)) {}
  void answered(const std::shared_ptr<Request>& self) override;
  const ae::Poster poster;
  Lookup* owner = nullptr;
};

class Lookup final : public Resolution {
 public:
  Lookup(std::shared_ptr<LoopRequest> request, std::function<void(Resolved)> done)
      : request_(std::move(request)), done_(std::move(done)) {
    request_->owner = this;
  }
  ~Lookup() override {
    if (std::exchange(request_->owner, nullptr) != nullptr) Pool::instance().leave(*request_);
  }
  static void deliver(LoopRequest& request) {
    if (request.owner == nullptr) return;
    // The callback may destroy the Lookup that owns it, so it is moved into a local variable first.
    const std::function<void(Resolved)> done = std::move(request.owner->done_);
    request.owner = nullptr;
    done(std::move(request.result));
  }

 private:
  std::shared_ptr<LoopRequest> request_;
  std::function<void(Resolved)> done_;
};

void LoopRequest::answered(const std::shared_ptr<Request>& self) {
  poster.post([self] { Lookup::deliver(static_cast<LoopRequest&>(*self)); });
}

/// A request of a thread that blocks until the answer arrives. The thread waits with poll(2) on a
/// descriptor, because a signal ends that wait, unlike a wait on a condition variable.
struct BlockingRequest final : Request {
  explicit BlockingRequest(std::uint16_t its_port)
      : Request(its_port), fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~BlockingRequest() override {
    if (fd >= 0) ::close(fd);
  }
  void answered(const std::shared_ptr<Request>&) override {
    there_.store(true, std::memory_order_release);
    (void)::eventfd_write(fd, 1);
  }
  /// Waits until the lookup has written the result. Returns false if the deadline has passed before
  /// that, or if a signal ends the call (Interruption).
  bool wait(ae::TimePoint deadline) const noexcept {
    using std::chrono::milliseconds;
    for (;;) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
      pollfd look{fd, POLLIN, 0};
      const auto limit = static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
      const int ready = ::poll(&look, 1, limit);
      if (there_.load(std::memory_order_acquire)) return true;
      if (ready < 0 && errno == EINTR && Interruption::came()) return false;
      if (Clock::now() >= deadline || Interruption::ends()) return false;
    }
  }
  const int fd;

 private:
  // True if `result` has been written. That the descriptor is readable does not prove this.
  std::atomic<bool> there_{false};
};

/// Delivers, from the event loop, an answer for which no lookup was needed.
class Immediate final : public Resolution {
 public:
  Immediate(ae::EventLoop& loop, Resolved result, std::function<void(Resolved)> done)
      : loop_(loop), result_(std::move(result)), done_(std::move(done)) {
    timer_ = loop_.add_time_event(ae::Duration::zero(), [this] {
      timer_ = 0;
      // The callback may destroy this object, so the callback is moved into a local variable first.
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

// --- the functions of SocketAddress --------------------------------------------------------------

std::uint16_t SocketAddress::port() const noexcept {
  switch (family()) {
    case AF_INET:
      return ntohs(reinterpret_cast<const sockaddr_in*>(get())->sin_port);
    case AF_INET6:
      return ntohs(reinterpret_cast<const sockaddr_in6*>(get())->sin6_port);
    case AF_VSOCK: {
      const unsigned port = reinterpret_cast<const sockaddr_vm*>(get())->svm_port;
      return static_cast<std::uint16_t>(port <= 65535 ? port : 0);
    }
    default:
      return 0;
  }
}

void SocketAddress::set_port(std::uint16_t port) noexcept {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(get())->sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(get())->sin6_port = htons(port);
  if (family() == AF_VSOCK) reinterpret_cast<sockaddr_vm*>(get())->svm_port = port;
}

std::string SocketAddress::host() const {
  // IPv4 is the common case, and is formatted here at a tenth of the cost of getnameinfo().
  if (family() == AF_INET) {
    std::array<unsigned char, 4> bytes{};
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in*>(get())->sin_addr, bytes.size());
    return fmt::format("{}.{}.{}.{}", bytes[0], bytes[1], bytes[2], bytes[3]);
  }
  if (family() == AF_VSOCK) {
    const unsigned cid = reinterpret_cast<const sockaddr_vm*>(get())->svm_cid;
    return cid == VMADDR_CID_ANY ? "*" : std::to_string(cid);
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
    std::string path(local->sun_path, strnlen(local->sun_path, length));
    // A file whose name begins with '@' is shown with its folder: "@" stands for abstract names.
    if (path.starts_with('@')) path.insert(0, "./");
    return path;
  }
  const std::string name = host();
  // The kernel gives vsock clients ports above 65535, which host_port() cannot write.
  if (family() == AF_VSOCK)
    return name + ':' + std::to_string(reinterpret_cast<const sockaddr_vm*>(get())->svm_port);
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

Resolved resolve_until(const std::string& host, std::uint16_t port, ae::TimePoint deadline) {
  if (std::optional<Resolved> result = resolve_at_once(host, port, false)) return *result;
  // A signal has ended the caller's blocking call already, while it looked up another host.
  if (Interruption::ends()) return {{}, errno_failure(EINTR, "resolve " + host)};
  const auto request = std::make_shared<BlockingRequest>(port);
  if (request->fd < 0) return {{}, errno_failure(errno, "resolve " + host)};
  Pool::instance().submit(host, request);
  if (request->wait(deadline)) return std::move(request->result);
  Pool::instance().leave(*request);
  return {{}, errno_failure(Interruption::ends() ? EINTR : ETIMEDOUT, "resolve " + host)};
}

std::unique_ptr<Resolution> resolve_async(ae::EventLoop& loop, const std::string& host,
                                          std::uint16_t port, std::function<void(Resolved)> done) {
  assert(done);
  if (std::optional<Resolved> result = resolve_at_once(host, port, false)) {
    return std::make_unique<Immediate>(loop, std::move(*result), std::move(done));
  }
  auto request = std::make_shared<LoopRequest>(port, loop.poster());
  auto lookup = std::make_unique<Lookup>(request, std::move(done));
  Pool::instance().submit(host, request);
  return lookup;
}

}}  // namespace conn
