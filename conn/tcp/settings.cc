// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/settings.h"

#include <grp.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <vector>

#include "ae/once.h"
#include "conn/error.h"
#include "conn/tcp/trusted_senders.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMaxBuffer = std::uint64_t{1} << 30;

// Returns a Settings object with the default of every option, as the member initializers set it.
const Settings& defaults() {
  return ae::once([] { return Settings(); });
}

OptionRow backlog() {
  return OptionRow::number("backlog", OptionSide::kListener,
                           static_cast<std::uint64_t>(defaults().backlog), 1, 65535,
                           "pending connections; the kernel caps it at `somaxconn`");
}
OptionRow accept_batch() {
  return OptionRow::number("accept-batch", OptionSide::kListener, defaults().accept_batch, 1, 65535,
                           "most accepted from one address in one iteration")
      .tuning();
}
OptionRow max_connections() {
  return OptionRow::number("max-connections", OptionSide::kListener, defaults().max_connections, 1,
                           Quota::kMost, "of this listener; further connections are closed");
}
OptionRow connect_timeout(std::string_view meaning) {
  return OptionRow::duration("connect-timeout", OptionSide::kConnecting, defaults().connect_timeout,
                             1ms, 24h, meaning);
}
OptionRow buffer(std::string_view name, int fallback, std::string_view meaning) {
  return OptionRow::bytes(name, OptionSide::kBoth, static_cast<std::uint64_t>(fallback), 0,
                          kMaxBuffer, meaning)
      .tuning();
}
OptionRow send_buffer() {
  return buffer("send-buffer", defaults().send_buffer,
                "`SO_SNDBUF`; 0: the kernel decides and adapts");
}

std::shared_ptr<const TrustedSenders> parse_proxies(OptionReader& options) {
  const std::string text = options.text("proxy-protocol");
  if (!options.given("proxy-protocol") || text == "no") return {};
  return std::make_shared<TrustedSenders>(TrustedSenders::parse(text));
}

void parse_shared(OptionReader& options, Settings& s) {
  s.backlog = static_cast<int>(options.number("backlog"));
  s.accept_batch = static_cast<unsigned>(options.number("accept-batch"));
  s.max_connections = options.number("max-connections");
  s.connect_timeout = options.duration("connect-timeout");
  s.idle_timeout = options.duration("idle-timeout");
}

void parse_common(OptionReader& options, Settings& s) {
  parse_shared(options, s);
  s.send_buffer = static_cast<int>(options.number("send-buffer"));
}

/// Returns the value of option mode, octal permissions of the socket file such as "770" or "0770";
/// -1 if the option is not given. Throws Error for a bad value.
int parse_mode(OptionReader& options) {
  const std::string text = options.text("mode");
  if (!options.given("mode")) return -1;
  const bool octal =
      !text.empty() && text.size() <= 4 && text.find_first_not_of("01234567") == std::string::npos;
  const int mode = octal ? std::stoi(text, nullptr, 8) : -1;
  if (mode < 0 || mode > 0777) {
    throw Error("option mode=" + text + ": must be octal permissions, as in 770");
  }
  return mode;
}

/// Returns the group that the system's database has under `name`; no value if it has none. Throws
/// Error if the database cannot be read.
std::optional<gid_t> look_up_group(const std::string& name) {
  std::vector<char> buffer(1024);
  for (;;) {
    group entry{};
    group* found = nullptr;
    const int err = getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (found != nullptr) return found->gr_gid;
    if (err == ERANGE && buffer.size() < (std::size_t{1} << 24)) {
      buffer.resize(buffer.size() * 4);  // the group's list of members did not fit
    } else if (err == EINTR) {
      continue;
    } else if (err == 0 || err == ENOENT || err == ESRCH || err == EBADF || err == EPERM) {
      return std::nullopt;  // by getgrnam(3) these values mean that the group is unknown
    } else {
      throw errno_error(err, "option group=" + name);
    }
  }
}

/// Returns the value of option group, a group's number or name; no value if the option is not
/// given. Throws Error for a group that is not there.
std::optional<gid_t> parse_group(OptionReader& options) {
  const std::string text = options.text("group");
  if (!options.given("group")) return std::nullopt;
  gid_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  // The largest number is no group: chown(2) takes it for "unchanged".
  if (error == std::errc() && rest == end && number != static_cast<gid_t>(-1)) return number;
  std::optional<gid_t> found;
  if (!text.empty() && text.find('\0') == std::string::npos) found = look_up_group(text);
  if (!found) {
    throw Error("option group=" + text +
                ": this machine has no such group; give the name or the number of one");
  }
  return found;
}

/// Returns the value of option bind-device, the name of a network device; empty if the option is
/// not given. Throws Error for a text that no device can have as its name.
std::string parse_device(OptionReader& options) {
  const std::string text = options.text("bind-device");
  if (!options.given("bind-device")) return {};
  const bool fits =
      !text.empty() && text.size() < IFNAMSIZ && std::none_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || c == '/' || c == ':';
      });
  if (!fits) {
    throw Error("option bind-device=" + text + ": must be the name of a network device, as eth0");
  }
  return text;
}

SocketAddress parse_source(OptionReader& options) {
  const std::string text = options.text("source");
  if (!options.given("source")) return {};
  // Accepts only a numeric address: a host name would be resolved for every connection, on the
  // loop's thread.
  SocketAddress address;
  if (!numeric_address(text, 0, address)) {
    throw Error("option source=" + text + ": must be an IPv4 or IPv6 address");
  }
  return address;
}

}  // namespace

const OptionTable& tcp_options() {
  using Row = OptionRow;
  constexpr OptionSide kListener = OptionSide::kListener, kBoth = OptionSide::kBoth;
  return ae::once([] {
    return OptionTable(
        "tcp",
        {{"",
          {backlog(), accept_batch(), max_connections(),
           Row::flag("reuseport", kListener, defaults().reuseport,
                     "`SO_REUSEPORT`: several listeners share the port"),
           Row::text("proxy-protocol", kListener, "no", "no, or addresses and networks, by commas",
                     "proxies whose connections begin with a PROXY header"),
           connect_timeout("for all of connect(): lookup and every address"),
           Row::text("source", OptionSide::kConnecting, "the route's", "an IP address",
                     "address to connect from; no name"),
           spread_row(defaults().spread),
           Row::flag("nodelay", kBoth, defaults().nodelay, "`TCP_NODELAY`"),
           // The maximum of 9 h is just below the kernel's limit for TCP_KEEPIDLE, 32767 s.
           Row::duration("keepalive", kBoth, defaults().keepalive, 0s, 9h,
                         "silence before the kernel probes; 0: off"),
           Row::duration("user-timeout", kBoth, defaults().user_timeout, 0s, 24h,
                         "`TCP_USER_TIMEOUT`; 0: the kernel's own rule"),
           Row::duration("linger", kBoth, defaults().linger, 0s, 1h,
                         "how long close() may deliver; 0: a plain close(2)"),
           EndLinger::row("as `linger`, where the loop ends under the connection"),
           IdleTimeout::row(),
           Row::flag("mptcp", kBoth, defaults().mptcp,
                     "Multipath TCP, where the peer has it, too; else plain TCP"),
           Row::text("bind-device", kBoth, "the route's", "a network device",
                     "`SO_BINDTODEVICE`: packets use this device alone, as `eth0`"),
           Row::number(
               "mark", kBoth, defaults().mark, 0, UINT32_MAX,
               "`SO_MARK` of the packets, for rules of the routing and the firewall; 0: none")
               .tuning(),
           Row::number("traffic-class", kBoth, 0, 0, 255,
                       "of the packets; the upper six bits are the DSCP")
               .by_default("the kernel's")
               .tuning(),
           send_buffer(),
           buffer("receive-buffer", defaults().receive_buffer,
                  "`SO_RCVBUF`; 0: the kernel decides and adapts"),
           Row::bytes("zero-copy", kBoth, defaults().zero_copy, 0, kMaxBuffer,
                      "pieces of this size on that send() is given: `MSG_ZEROCOPY`; 0: none")
               .or_word({"no"})
               .tuning()}}},
        {FormerOption::renamed("dscp", "traffic-class", 4)});
  });
}

const OptionTable& unix_options() {
  return ae::once([] {
    constexpr std::string_view kDelivered =
        "leave it out, what was written is with the peer's kernel already";
    return OptionTable(
        "unix",
        {{"",
          {backlog(), accept_batch(), max_connections(),
           OptionRow::text("mode", OptionSide::kListener, "the umask's", "octal, to 777",
                           "permissions of the socket's file"),
           OptionRow::text("group", OptionSide::kListener, "the process's", "a name or number",
                           "group of the socket's file"),
           OptionRow::flag("proxy-protocol", OptionSide::kListener, false,
                           "each connection begins with a PROXY header"),
           connect_timeout("how long a full backlog is waited for"), IdleTimeout::row(),
           send_buffer()}}},
        {FormerOption::gone("linger", kDelivered), FormerOption::gone("end-linger", kDelivered),
         FormerOption::gone(
             "receive-buffer",
             "leave it out, or set the sender's send-buffer: Linux limits what waits "
             "in a Unix socket by that alone")});
  });
}

const OptionTable& vsock_options() {
  return ae::once([] {
    return OptionTable("vsock", {{"",
                                  {backlog(), accept_batch(), max_connections(),
                                   connect_timeout("how long the other machine is waited for"),
                                   IdleTimeout::row()}}});
  });
}

Settings tcp_settings(const Options& options) {
  tcp_options().only(options);
  OptionReader read(tcp_options(), options);
  Settings s;
  parse_common(read, s);
  s.linger = read.duration("linger");
  s.end_linger = read.duration("end-linger");
  s.receive_buffer = static_cast<int>(read.number("receive-buffer"));
  s.nodelay = read.flag("nodelay");
  s.reuseport = read.flag("reuseport");
  s.keepalive = read.duration("keepalive");
  s.user_timeout = read.duration("user-timeout");
  s.source = parse_source(read);
  s.proxies = parse_proxies(read);
  s.spread = spread_from(read);
  s.zero_copy = read.number("zero-copy");
  s.mptcp = read.flag("mptcp");
  s.bind_device = parse_device(read);
  s.mark = static_cast<std::uint32_t>(read.number("mark"));
  const auto traffic_class = static_cast<int>(read.number("traffic-class"));
  if (read.given("traffic-class")) s.traffic_class = traffic_class;
  read.finish();
  return s;
}

Settings unix_settings(const Options& options) {
  unix_options().only(options);
  OptionReader read(unix_options(), options);
  Settings s;
  parse_common(read, s);
  s.mode = parse_mode(read);
  s.group = parse_group(read);
  if (read.flag("proxy-protocol"))
    s.proxies = std::make_shared<TrustedSenders>(TrustedSenders::everybody());
  read.finish();
  return s;
}

Settings vsock_settings(const Options& options) {
  vsock_options().only(options);
  OptionReader read(vsock_options(), options);
  Settings s;
  parse_shared(read, s);
  read.finish();
  return s;
}

}}}  // namespace conn::tcp
