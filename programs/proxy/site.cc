// SPDX-License-Identifier: BSD-3-Clause
#include "site.h"

#include <fmt/format.h>

#include <exception>
#include <iterator>
#include <new>
#include <thread>
#include <utility>

namespace proxy {
namespace {

// Interval between checks for idle relays.
constexpr ae::Duration kLook = std::chrono::milliseconds(250);

/// Returns an end's address for the PROXY header. Unset for a Unix socket, whose owner may choose a
/// path that looks like an address, and for vsock, whose context ID is a mere number.
conn::SocketAddress numeric(const conn::Connection& client, const conn::Address& address) {
  conn::SocketAddress out;
  const std::string_view scheme = client.type().name();
  if (conn::carries_path(scheme) || scheme.ends_with("vsock") ||
      !conn::numeric_address(address.host, address.port, out))
    return {};
  return out;
}

}  // namespace

void check(const Settings& settings) {
  if (settings.connect.port == 0 && !conn::carries_path(settings.connect.scheme))
    throw conn::Error("--connect: " + settings.connect.to_string() +
                      ": port 0 is not the port of a server");
  if (!settings.proxy_protocol || settings.connect.scheme == "tcp" ||
      settings.connect.scheme == "unix")
    return;
  throw conn::Error(
      "--proxy-protocol: the header is sent over tcp and unix only; it comes before TLS, and other "
      "transports have none; --connect has " +
      settings.connect.scheme);
}

Site::Site(ae::EventLoop& loop, const conn::Registry& registry, const Settings& settings)
    : loop_(loop),
      registry_(registry),
      settings_(settings),
      idle_text_(fmt::format("closed: no byte in {} s", settings.idle_timeout.count())) {
  if (settings_.idle_timeout == std::chrono::seconds(0)) return;
  idle_timer_ = loop_.add_time_event(kLook, [this]() -> ae::Duration {
    look_for_idle();
    return kLook;
  });
}

Site::~Site() {
  if (idle_timer_ != 0) loop_.remove_time_event(idle_timer_);
  for (const auto& relay : relays_) relay->cut_short();
}

void Site::accept(conn::ConnectionPtr client) try {
  std::string header;
  if (settings_.proxy_protocol)
    header =
        conn::proxy_header(*settings_.proxy_protocol, numeric(*client, client->peer_host_port()),
                           numeric(*client, client->local_host_port()));
  relays_.push_back(
      std::make_unique<Relay>(static_cast<Relay::Owner&>(*this), counters_, std::move(client)));
  Relay& relay = *relays_.back();
  relay.place = std::prev(relays_.end());
  try {
    if (settings_.verbose) settings_.log(relay.client_name() + ": connected");
    relay.connect(registry_.create(loop_, settings_.connect), settings_.connect, std::move(header));
  } catch (const std::exception& error) {  // no device or memory
    ++counters_.failed;
    relay.abort();
    over(relay, error.what());
  }
} catch (const std::bad_alloc&) {
  ++counters_.failed;  // the client is closed; other relays continue
}

// Must not throw: its callers cannot go on with a relay whose connections are gone, and often they
// are called by the relay, which no longer exists then.
void Site::over(Relay& relay, std::string_view why) noexcept {
  try {
    log_end(relay, why);
  } catch (const std::bad_alloc&) {  // the log lacks this line
  }
  relays_.erase(relay.place);
  tell_if_empty();
}

void Site::log_end(const Relay& relay, std::string_view why) {
  if (!why.empty() && settings_.verbose)
    settings_.log(fmt::format("{}: {}", relay.client_name(), why));
  else if (!why.empty())
    settings_.failures.add(service::LimitedLog::now(),
                           fmt::format("{}: {}", relay.client_name(), why), settings_.log);
  else if (settings_.verbose)
    settings_.log(relay.client_name() + ": closed");
}

// If memory is exhausted, calls the function again until it succeeds: nothing else announces that
// the last relay has ended.
void Site::tell_if_empty() noexcept {
  if (!relays_.empty() || !empty_) return;
  const std::function<void()> empty = std::exchange(empty_, nullptr);
  for (;;) {
    try {
      return empty();
    } catch (const std::bad_alloc&) {
      std::this_thread::yield();
    }
  }
}

void Site::look_for_idle() {
  const ae::TimePoint now = loop_.now();
  for (auto each = relays_.begin(); each != relays_.end();) {
    Relay& relay = **each++;
    if (now - relay.last_byte() < settings_.idle_timeout) continue;
    ++counters_.idle;
    relay.cut_short();
    over(relay, idle_text_);
  }
}

void Site::drain(std::function<void()> empty) {
  empty_ = std::move(empty);
  tell_if_empty();
}

}  // namespace proxy
