// SPDX-License-Identifier: BSD-3-Clause
#include "conn/endpoint.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "conn/error.h"
#include "conn/url/percent.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

bool is_shm(std::string_view scheme) noexcept {
  return scheme == "shm" || scheme.ends_with("+shm");
}

bool is_secure(std::string_view scheme) noexcept {
  return scheme == "tls" || scheme.starts_with("tls+");
}

/// Parses one URL. The text of every error that it throws begins with the URL.
class Parser {
 public:
  explicit Parser(std::string_view url) : url_(url), rest_(url) {}

  Endpoint parse() {
    scheme();
    options();
    list();
    if (carries_path(endpoint_.scheme) || (!endpoint_.is_list() && rest_.starts_with("///"))) {
      path();
    } else {
      if (!rest_.starts_with("//")) {
        fail("'//' must follow the scheme, as in " + endpoint_.scheme + "://127.0.0.1:6379");
      }
      rest_.remove_prefix(2);
      authority();
    }
    return std::move(endpoint_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    std::string shown(url_);
    for (char& c : shown) {
      // Control characters are not shown; a NUL character would even end the error message.
      if (static_cast<unsigned char>(c) < ' ') c = '?';
    }
    throw Error(shown + ": " + what);
  }

  [[noreturn]] void refuse_character(char c) const {
    const bool visible = static_cast<unsigned char>(c) >= ' ';
    fail(visible ? std::string("'") + c + "' cannot stand in a host name"
                 : "a control character cannot stand in a host name");
  }

  void scheme() {
    const std::size_t colon = url_.find(':');
    const std::string_view name = url_.substr(0, colon);
    const bool fits =
        !name.empty() && is_letter(name[0]) && std::all_of(name.begin(), name.end(), [](char c) {
          return is_letter(c) || is_digit(c) || c == '+' || c == '-' || c == '.' || c == '|';
        });
    if (colon == std::string_view::npos || !fits) {
      fail("not a URL; write the transport first, as in tcp://127.0.0.1:6379 or unix:///run/kv");
    }
    for (const char c : name) {
      endpoint_.scheme += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    rest_.remove_prefix(colon + 1);
  }

  /// Checks the schemes of a URL, which may be a list. All schemes share the rest of the URL; only
  /// shm, in a list with other schemes, has a path of its own. Each scheme must be at least as
  /// secure as those listed before it.
  void list() const {
    const std::vector<std::string> names = endpoint_.schemes();
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty() || !is_letter(names[i][0])) {
        fail("a scheme is missing beside '|'; write rdma|tcp://127.0.0.1:6379");
      }
      for (std::size_t before = 0; before < i; ++before) {
        if (names[i] == names[before]) fail(names[i] + " stands twice in the list of schemes");
        if (is_secure(names[before]) && !is_secure(names[i])) {
          fail(names[before] + " must not be followed by " + names[i] +
               ", which is not encrypted; write " + names[before] + "|" + secured(names[i]));
        }
      }
    }
    share(names);
  }

  /// Checks that the schemes fit the rest of the URL: all must need a path, or all must need hosts.
  /// The exception is shm beside other schemes: option shm-path must then name the path for shm,
  /// and the other schemes must all need a path, or all need hosts.
  void share(const std::vector<std::string>& names) const {
    const auto own = std::find_if(names.begin(), names.end(), is_shm);
    const auto first = std::find_if_not(names.begin(), names.end(), is_shm);
    const bool beside = own != names.end() && first != names.end();
    if (endpoint_.options.has("shm-path") && own != names.end() && !beside)
      fail(
          "option shm-path is for shm beside other schemes, as in shm|tcp://127.0.0.1:6379; "
          "here the path stands in the URL");
    if (beside && !endpoint_.options.has("shm-path"))
      fail(*own + " and " + *first + " cannot share a URL unless " + *own +
           " has a path of its own, as in ?shm-path=/run/kv.shm");
    for (auto other = names.begin(); other != names.end(); ++other) {
      if (beside && is_shm(*other)) {
        if (other != own) fail(*own + " and " + *other + " cannot share the path of shm-path");
        continue;
      }
      if (beside && other->ends_with("vsock"))
        fail(*own + " and " + *other + " cannot share a URL: " + *other +
             " leads to another machine");
      if (const std::string& with = beside ? *first : names[0];
          carries_path(*other) != carries_path(with))
        fail(with + " and " + *other +
             " cannot share a URL: one leads to a path, the other to a host and a port");
    }
  }

  static std::string secured(const std::string& scheme) {
    return scheme == "tcp" ? "tls" : "tls+" + scheme;
  }

  void options() {
    const std::size_t mark = rest_.find('?');
    if (mark == std::string_view::npos) return;
    try {
      endpoint_.options = Options::parse(rest_.substr(mark + 1));
    } catch (const Error& error) {
      fail(error.what());
    }
    rest_ = rest_.substr(0, mark);
  }

  void path() {
    if (rest_.starts_with("//")) {
      rest_.remove_prefix(2);
      if (!rest_.empty() && rest_[0] != '/') {
        fail("a path after '//' starts with '/', as in " + endpoint_.scheme +
             ":///run/kv.sock; write a relative one as " + endpoint_.scheme + ":kv.sock");
      }
    }
    if (rest_.empty() || rest_ == "/") {
      if (!carries_path(endpoint_.scheme)) fail("a host or a path must follow '//'");
      fail("the path of the socket is missing, as in " + endpoint_.scheme + ":///run/kv.sock");
    }
    if (rest_.find('\0') != std::string_view::npos) fail("a path cannot hold a NUL byte");
    std::optional<std::string> path = percent_decode(rest_);
    if (!path) fail(std::string(kBadPercent));
    endpoint_.path = *std::move(path);
  }

  void authority() {
    // Bytes written as %XX are decoded, except in brackets, where '%' begins the scope of an IPv6
    // address.
    std::string plain;
    for (std::size_t end = 0; !rest_.empty(); rest_.remove_prefix(end)) {
      const bool bracketed = rest_[0] == '[';
      end = bracketed ? std::min(rest_.find(']'), rest_.size() - 1) + 1
                      : std::min(rest_.find('['), rest_.size());
      const std::string_view piece = rest_.substr(0, end);
      const std::optional<std::string> decoded = percent_decode(piece);
      if (!bracketed && !decoded) fail(std::string(kBadPercent));
      if (!bracketed && decoded->find('[') != std::string::npos) refuse_character('[');
      plain += bracketed ? piece : *decoded;
    }
    rest_ = plain;
    for (;;) {
      host();
      if (rest_.empty()) {
        endpoint_.no_port = true;
        return;
      }
      const char next = rest_[0];
      rest_.remove_prefix(1);
      if (next == ':') {
        port();
        return;
      }
      if (next == '/') fail("a " + endpoint_.scheme + " URL ends with its port, without '/'");
      if (next != ',') refuse_character(next);
    }
  }

  void host() {
    Endpoint::Host host;
    if (rest_.starts_with('-')) {
      host.optional = true;
      rest_.remove_prefix(1);
    }
    if (rest_.starts_with('[')) {
      bracketed(host);
    } else {
      const auto end = std::find_if(rest_.begin(), rest_.end(), [](char c) {
        return !is_letter(c) && !is_digit(c) && c != '.' && c != '-' && c != '_' && c != '*';
      });
      host.name.assign(rest_.begin(), end);
      rest_.remove_prefix(host.name.size());
      if (host.name.empty()) {
        if (rest_.empty() || rest_[0] == ':' || rest_[0] == ',') {
          fail("a host is missing; * stands for every IPv4 address, [::] for every IPv6 address");
        }
        refuse_character(rest_[0]);
      }
      if (host.name.find('*') != std::string::npos && host.name != "*") {
        fail("'*' stands alone, for every IPv4 address");
      }
      if (host.name[0] == '-') fail("a host name cannot start with '-'");
    }
    endpoint_.hosts.push_back(std::move(host));
  }

  void bracketed(Endpoint::Host& host) {
    const std::size_t end = rest_.find(']');
    if (end == std::string_view::npos) fail("']' is missing after the IPv6 address");
    host.name = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    in6_addr address;
    // The IPv6 address without its scope, which is a suffix such as %eth0.
    const std::string digits = host.name.substr(0, host.name.find('%'));
    if (inet_pton(AF_INET6, digits.c_str(), &address) != 1 || host.name.back() == '%' ||
        percent_encode(host.name, UrlPart::kAddress) != host.name) {
      fail("[" + host.name + "] is not an IPv6 address");
    }
    if (!rest_.empty() && rest_[0] != ':' && rest_[0] != ',') {
      fail("a port or nothing follows ']'");
    }
  }

  void port() {
    if (rest_.find(',') != std::string_view::npos) {
      fail("one port serves all hosts and follows the last, as in tcp://127.0.0.1,[::1]:6379");
    }
    if (std::count(rest_.begin(), rest_.end(), ':') > 0) {
      fail("an IPv6 address stands in brackets, as in tcp://[::1]:6379");
    }
    const bool digits =
        !rest_.empty() && rest_.size() <= 5 && std::all_of(rest_.begin(), rest_.end(), is_digit);
    unsigned value = 0;
    if (digits) std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (!digits || value > 65535) {
      fail("'" + std::string(rest_) + "' is not a port (0 to 65535)");
    }
    endpoint_.port = static_cast<std::uint16_t>(value);
  }

  std::string_view url_;
  std::string_view rest_;
  Endpoint endpoint_;
};

}  // namespace

bool carries_path(std::string_view scheme) noexcept {
  for (;;) {
    const std::size_t end = scheme.find('|');
    const std::string_view one = scheme.substr(0, end);
    if (!one.ends_with("unix") && !is_shm(one)) return false;
    if (end == scheme.npos) return true;
    scheme.remove_prefix(end + 1);
  }
}

Endpoint Endpoint::parse(std::string_view url) { return Parser(url).parse(); }

std::vector<std::string> Endpoint::schemes() const {
  std::vector<std::string> names;
  for (std::size_t begin = 0;;) {
    const std::size_t end = scheme.find('|', begin);
    names.push_back(scheme.substr(begin, end - begin));
    if (end == std::string::npos) return names;
    begin = end + 1;
  }
}

std::string Endpoint::to_string() const {
  std::string out = scheme;
  if (hosts.empty() && (carries_path(scheme) || path.starts_with('/'))) {
    out.append(path.starts_with('/') ? "://" : ":").append(percent_encode(path, UrlPart::kPath));
  } else {
    out += "://";
    for (const Host& host : hosts) {
      if (&host != &hosts.front()) out += ',';
      if (host.optional) out += '-';
      const bool bracket = host.name.find(':') != std::string::npos;
      out.append(bracket ? "[" : "")
          .append(percent_encode(host.name, bracket ? UrlPart::kAddress : UrlPart::kHost))
          .append(bracket ? "]" : "");
    }
    if (!no_port) out.append(":").append(std::to_string(port));
  }
  if (!options.empty()) out.append("?").append(options.to_string());
  return out;
}

std::string host_port(std::string_view host, std::uint16_t port) {
  std::string out;
  const bool bracket = host.find(':') != std::string_view::npos;
  out.append(bracket ? "[" : "").append(host).append(bracket ? "]:" : ":");
  return out.append(std::to_string(port));
}

Address split_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (colon == std::string_view::npos || text.starts_with('/') || text.starts_with('@') ||
      (!bracketed && host.find(':') != std::string_view::npos))
    return {std::string(text), 0};
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || rest != end) return {std::string(text), 0};
  if (bracketed) host = host.substr(1, host.size() - 2);
  return {std::string(host), port};
}

}}  // namespace conn
