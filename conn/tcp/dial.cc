// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/dial.h"
#include "conn/kit/descriptor.h"
#include "conn/kit/interruption.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <span>
#include <thread>
#include <utility>

#include "conn/tcp/vsock.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

using namespace std::chrono_literals;

// If the backlog of a Unix socket is full, a non-blocking connect() fails with EAGAIN at once
// instead of staying in progress. So connect() is repeated, first after kFirstRetry, then after
// twice the time of the last wait, at most kLastRetry.
constexpr ae::Duration kFirstRetry = 1ms, kLastRetry = 50ms;

Failure connect_failure(const SocketAddress& to, int err) {
  if (to.family() == AF_VSOCK) {
    // The kernel reports ECONNRESET for a port of vsock without a listener.
    if (err == ECONNRESET) err = ECONNREFUSED;
    return {std::error_code(err, std::generic_category()),
            "connect to " + to.to_string() + ": " + vsock_error_text(err)};
  }
  return errno_failure(err, "connect to " + to.to_string());
}

/// Returns the failure of opening a socket, with the address to which it would have connected.
Failure connect_failure(const SocketAddress& to, const Failure& why) {
  return {why.code, "connect to " + to.to_string() + ": " + why.text};
}

Failure timed_out(const std::string& what) { return errno_failure(ETIMEDOUT, what); }

/// Returns how much of the remaining time `left` connecting to one address may take: half of it if
/// other addresses are left to try (`others`), otherwise all.
ae::Duration share(ae::Duration left, bool others) {
  left = std::max(left, ae::Duration::zero());
  return others ? left / 2 : left;
}

/// Creates the socket `fd` and connects it to the address `to`, blocking until `deadline` at most.
/// Returns the failure; empty: none.
Failure try_now(const Settings& settings, const SocketAddress& to, ae::TimePoint deadline, Fd& fd) {
  const auto result = [&](int err) { return err == 0 ? Failure() : connect_failure(to, err); };
  ae::Duration delay = kFirstRetry;
  for (;;) {
    fd.reset();
    if (const Failure why = open_socket_for(settings, to.family(), fd))
      return connect_failure(to, why);
    const int err = start_connect(fd.get(), to, settings);
    if (err == EINPROGRESS) {
      if (poll_until(fd.get(), POLLOUT, deadline)) return result(connect_result(fd.get()));
      return result(Interruption::ends() ? EINTR : ETIMEDOUT);
    }
    if (err != EAGAIN || to.family() != AF_UNIX) return result(err);
    const ae::TimePoint now = std::chrono::steady_clock::now();
    if (now >= deadline) return result(ETIMEDOUT);
    if (Interruption::ends()) return result(EINTR);
    // Sleeps before the next attempt: with descriptor -1, poll_until() waits for no event. A signal
    // interrupts this sleep as it interrupts poll(2).
    poll_until(-1, 0, std::min(now + delay, deadline));
    delay = std::min(delay * 2, kLastRetry);
  }
}

}  // namespace

Dial::Dial(ae::EventLoop& loop, std::shared_ptr<const Settings> settings, AddressBook& book,
           const Endpoint& to, std::function<void(Dialed)> done)
    : loop_(loop),
      settings_(std::move(settings)),
      book_(book),
      to_(to),
      done_(std::move(done)),
      deadline_(std::chrono::steady_clock::now() + settings_->connect_timeout) {}

void Dial::start() {
  deadline_timer_ = after(settings_->connect_timeout, deadline_timer_, [this] { out_of_time(); });
  const SocketAddress fixed = fixed_address(to_);
  if (fixed.size == 0) return look_up();
  host_ = to_.hosts.size();  // there is no host to look up after this address
  addresses_.push_back(fixed);
  retry_timer_ = after(0s, retry_timer_, [this] { try_address(); });
}

Dial::~Dial() {
  // The connect is cancelled before it has ended. If the address has not answered for kSilence by
  // now, the address book records that it timed out.
  if (fd_ && std::chrono::steady_clock::now() - attempt_began_ >= AddressBook::kSilence)
    book_.report(settings_->spread, addresses_[address_],
                 std::make_error_code(std::errc::timed_out));
  stop_watching();
  if (deadline_timer_ != 0) loop_.remove_time_event(deadline_timer_);
}

/// Runs `step`, the body of every callback from the loop. If memory runs out in it, the connect
/// fails. Once the result is known, passes it to `done_`, whose exceptions propagate and which may
/// destroy this object.
template <class Step>
void Dial::take(Step step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    over_ = Dialed{{}, {}, out_of_memory(), {}};
  }
  if (!over_) return;
  stop_watching();
  lookup_.reset();
  if (deadline_timer_ != 0) loop_.remove_time_event(deadline_timer_);
  deadline_timer_ = 0;
  const std::function<void(Dialed)> done = std::move(done_);
  Dialed result = *std::move(over_);
  done(std::move(result));
}

template <class Step>
ae::TimerId Dial::after(ae::Duration delay, ae::TimerId& timer, Step step) {
  return loop_.add_time_event(delay, [this, &timer, step] {
    timer = 0;
    take(step);
    return ae::kNoMore;
  });
}

void Dial::stop_watching() {
  if (fd_) loop_.remove_file_event(fd_.get(), ae::kWritable);
  fd_.reset();
  if (attempt_timer_ != 0) loop_.remove_time_event(attempt_timer_);
  if (retry_timer_ != 0) loop_.remove_time_event(retry_timer_);
  attempt_timer_ = retry_timer_ = 0;
}

void Dial::next_host() {
  if (host_ == to_.hosts.size()) {
    over_ = Dialed{{}, {}, std::move(last_failure_), {}};
    return;
  }
  look_up();
}

void Dial::look_up() {
  lookup_ = resolve_async(loop_, to_.hosts[host_++].name, to_.port,
                          [this](Resolved answer) { take([&] { resolved(std::move(answer)); }); });
}

void Dial::resolved(Resolved answer) {
  lookup_.reset();
  // Option spread chooses among the addresses of all hosts, so all of them are resolved before the
  // first attempt to connect.
  const bool all = settings_->spread != AddressOrder::kFirst;
  if (!all || addresses_.empty()) {
    address_ = 0;
    addresses_ = std::move(answer.addresses);
  } else {
    keep(std::move(answer.addresses));
  }
  if (answer.failure) last_failure_ = std::move(answer.failure);
  if (addresses_.empty() || (all && host_ < to_.hosts.size())) {
    next_host();
  } else {
    try_address();
  }
}

void Dial::keep(std::vector<SocketAddress> found) noexcept {
  try {
    addresses_.insert(addresses_.end(), found.begin(), found.end());
  } catch (const std::bad_alloc&) {
    // if memory runs out, continues with the addresses found so far
    last_failure_ = out_of_memory();
  }
}

void Dial::next_address() {
  stop_watching();
  retry_delay_ = ae::Duration::zero();
  if (++address_ < addresses_.size()) {
    try_address();
  } else {
    next_host();
  }
}

ae::Duration Dial::share_of_time() const {
  const bool others = address_ + 1 < addresses_.size() || host_ < to_.hosts.size();
  return share(deadline_ - std::chrono::steady_clock::now(), others);
}

void Dial::try_address() {
  place_ =
      book_.choose(settings_->spread, std::span(addresses_).subspan(address_), settings_->source);
  attempt_began_ = std::chrono::steady_clock::now();
  const SocketAddress& to = addresses_[address_];
  if (const Failure why = open_socket_for(*settings_, to.family(), fd_)) {
    attempt_failed(connect_failure(to, why));
    return;
  }
  const int err = start_connect(fd_.get(), to, *settings_);
  if (err == 0) {
    connected();
  } else if (err == EINPROGRESS) {
    watch_attempt();
  } else if (err == EAGAIN && to.family() == AF_UNIX) {
    retry_later();
  } else {
    attempt_failed(err);
  }
}

void Dial::watch_attempt() {
  try {
    loop_.add_file_event(fd_.get(), ae::kWritable | ae::kTrusted,
                         [this](int, ae::Mask) { take([this] { writable(); }); });
    if (attempt_timer_ != 0) return;
    attempt_timer_ = after(share_of_time(), attempt_timer_, [this] { attempt_failed(ETIMEDOUT); });
  } catch (const std::bad_alloc&) {
    attempt_failed(ENOMEM);
  }
}

void Dial::retry_later() {
  fd_.reset();
  retry_delay_ = std::clamp(retry_delay_ * 2, kFirstRetry, kLastRetry);
  retry_timer_ = after(retry_delay_, retry_timer_, [this] { try_address(); });
}

void Dial::writable() {
  const int err = connect_result(fd_.get());
  if (err != 0) {
    attempt_failed(err);
    return;
  }
  loop_.remove_file_event(fd_.get(), ae::kWritable);
  connected();
}

void Dial::connected() {
  book_.report(settings_->spread, addresses_[address_], {});
  over_ = Dialed{std::move(fd_), addresses_[address_], {}, std::move(place_)};
}

void Dial::attempt_failed(int err) { attempt_failed(connect_failure(addresses_[address_], err)); }

void Dial::attempt_failed(Failure why) {
  last_failure_ = std::move(why);
  book_.report(settings_->spread, addresses_[address_], last_failure_.code);
  next_address();
}

void Dial::out_of_time() {
  if (lookup_ != nullptr) {
    over_ = Dialed{{}, {}, timed_out("resolve " + to_.hosts[host_ - 1].name), {}};
    return;
  }
  Failure failure = connect_failure(addresses_[address_], ETIMEDOUT);
  book_.report(settings_->spread, addresses_[address_], failure.code);
  over_ = Dialed{{}, {}, std::move(failure), {}};
}

Dialed Dial::wait(const Settings& settings, AddressBook& book, const Endpoint& to,
                  ae::TimePoint deadline) {
  deadline = std::min(deadline, std::chrono::steady_clock::now() + settings.connect_timeout);
  Dialed result;
  const auto try_all = [&](std::vector<SocketAddress> addresses, bool more_hosts) {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      result.place = book.choose(settings.spread, std::span(addresses).subspan(i), settings.source);
      const SocketAddress& address = addresses[i];
      const ae::TimePoint now = std::chrono::steady_clock::now();
      const bool others = more_hosts || &address != &addresses.back();
      Failure why = try_now(settings, address, now + share(deadline - now, others), result.fd);
      if (!why) {
        book.report(settings.spread, address, {});
        result.peer = address;
        result.failure = {};
        return true;
      }
      result.fd.reset();
      result.failure = std::move(why);
      if (Interruption::ends()) return true;
      book.report(settings.spread, address, result.failure.code);
    }
    return false;
  };
  if (const SocketAddress fixed = fixed_address(to); fixed.size != 0) {
    try_all({fixed}, false);
    return result;
  }
  // Option spread chooses among the addresses of all hosts, so all hosts are resolved before the
  // first attempt to connect.
  const bool all = settings.spread != AddressOrder::kFirst;
  std::vector<SocketAddress> found;
  for (const Endpoint::Host& host : to.hosts) {
    const bool more = &host != &to.hosts.back();
    Resolved answer = resolve_until(host.name, to.port, deadline);
    if (answer.failure) result.failure = std::move(answer.failure);
    found.insert(found.end(), answer.addresses.begin(), answer.addresses.end());
    if (all && more) continue;
    if (try_all(std::exchange(found, {}), more)) break;
  }
  return result;
}

}}}  // namespace conn::tcp
