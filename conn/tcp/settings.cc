#include "conn/tcp/settings.h"

#include "conn/error.h"

namespace conn::tcp {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMaxBuffer = std::uint64_t{1} << 30;

void parse_common(const Options& options, Settings& s) {
  s.backlog = static_cast<int>(options.number("backlog", 511, 1, 65535));
  s.accept_batch = static_cast<unsigned>(options.number("accept-batch", 64, 1, 65535));
  s.max_connections = Quota::parse(options);
  s.connect_timeout = options.duration("connect-timeout", s.connect_timeout, 1ms, 24h);
  s.linger = options.duration("linger", s.linger, 0s, 1h);
  s.end_linger = EndLinger::parse(options);
  s.send_buffer = static_cast<int>(options.bytes("send-buffer", 0, 0, kMaxBuffer));
  s.receive_buffer = static_cast<int>(options.bytes("receive-buffer", 0, 0, kMaxBuffer));
}

/// Octal permissions, "770" or "0770".
int parse_mode(const Options& options) {
  if (!options.has("mode")) return -1;
  const std::string text = options.text("mode", "");
  const bool octal =
      !text.empty() && text.size() <= 4 && text.find_first_not_of("01234567") == std::string::npos;
  const int mode = octal ? std::stoi(text, nullptr, 8) : -1;
  if (mode < 0 || mode > 0777) {
    throw Error("option mode=" + text + ": must be octal permissions, as in 770");
  }
  return mode;
}

SocketAddress parse_source(const Options& options) {
  if (!options.has("source")) return {};
  const std::string text = options.text("source", "");
  // Only a number: a name would be looked up again for every connection, on the loop's thread.
  SocketAddress address;
  if (!numeric_address(text, 0, address)) {
    throw Error("option source=" + text + ": must be an IPv4 or IPv6 address");
  }
  return address;
}

}  // namespace

Settings tcp_settings(const Options& options) {
  options.only("tcp", {"accept-batch", "backlog", "connect-timeout", "end-linger", "keepalive",
                       "linger", "max-connections", "nodelay", "receive-buffer", "reuseport",
                       "send-buffer", "source", "user-timeout", "zero-copy"});
  Settings s;
  parse_common(options, s);
  s.nodelay = options.flag("nodelay", true);
  s.reuseport = options.flag("reuseport", false);
  s.keepalive = options.duration("keepalive", s.keepalive, 0s, 9h);  // the kernel's limit: 32767 s
  s.user_timeout = options.duration("user-timeout", s.user_timeout, 0s, 24h);
  s.source = parse_source(options);
  const bool off = options.text("zero-copy", "no") == "no";
  s.zero_copy = off ? 0 : options.bytes("zero-copy", 0, 0, kMaxBuffer);
  return s;
}

Settings unix_settings(const Options& options) {
  options.only("unix", {"accept-batch", "backlog", "connect-timeout", "end-linger", "linger",
                        "max-connections", "mode", "receive-buffer", "send-buffer"});
  Settings s;
  parse_common(options, s);
  s.mode = parse_mode(options);
  return s;
}

}  // namespace conn::tcp
