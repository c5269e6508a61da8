// SPDX-License-Identifier: BSD-3-Clause
// Goal: reading any text as a URL or as options gives a value or a conn::Error with one sentence;
// values read print as text that reads the same, and so does an endpoint whose path and options are
// arbitrary bytes. Method: the input up to its first line end is a URL, and also options; the other
// lines are names for the typed getters. Run by `make fuzz`, with the seeds in corpus/endpoint.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/options.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

/// Runs the action; an Error must have a text, any other exception ends the fuzzer.
template <class Action>
bool allowed(Action action) {
  try {
    action();
    return true;
  } catch (const conn::Error& error) {
    const std::string_view text = error.what();
    require(!text.empty());
    return false;
  }
}

void parse_url(std::string_view url) {
  const conn::Endpoint endpoint = conn::Endpoint::parse(url);
  require(!endpoint.scheme.empty() && (endpoint.path.empty() != endpoint.hosts.empty()));
  const std::string text = endpoint.to_string();
  const conn::Endpoint again = conn::Endpoint::parse(text);
  require(again.to_string() == text);
  require(again.scheme == endpoint.scheme && again.port == endpoint.port &&
          again.no_port == endpoint.no_port && again.path == endpoint.path &&
          again.options.values() == endpoint.options.values() &&
          again.hosts.size() == endpoint.hosts.size());
  for (std::size_t i = 0; i < endpoint.hosts.size(); ++i) {
    require(!endpoint.hosts[i].name.empty() && again.hosts[i].name == endpoint.hosts[i].name &&
            again.hosts[i].optional == endpoint.hosts[i].optional);
  }
}

// Any bytes as a path, as an option's name and as its value.
void print_and_parse(std::string_view bytes) {
  if (bytes.empty() || bytes == "/") return;
  conn::Endpoint endpoint;
  endpoint.scheme = "unix";
  endpoint.path = bytes;
  endpoint.options.set(std::string(bytes), std::string(bytes));
  const conn::Endpoint again = conn::Endpoint::parse(endpoint.to_string());
  require(again.path == endpoint.path && again.options.values() == endpoint.options.values());
}

void read_options(const conn::Options& options, std::string_view key) {
  using namespace std::chrono_literals;
  allowed([&] { (void)options.flag(key, false); });
  allowed([&] { require(options.number(key, 7, 5, 500) >= 5); });
  allowed([&] { require(options.bytes(key, 4096, 1, UINT64_MAX) >= 1); });
  allowed([&] {
    const ae::Duration time = options.duration(key, 1s, 1us, 1h);
    require(time >= 1us && time <= 1h);
  });
  allowed(
      [&] { require(options.duration(key, 0s, ae::Duration::min(), ae::Duration::max()) >= 0s); });
  require(options.text(key, "?").size() + 1 != 0);
  allowed([&] { options.only("tcp", {"backlog", "mode"}); });
}

void parse_options(std::string_view text) {
  const conn::Options options = conn::Options::parse(text);
  const conn::Options again = conn::Options::parse(options.to_string());
  require(again.values() == options.values());
  require(options.merged_with(again).values() == options.values());
  for (const auto& [key, value] : options.values()) read_options(options, key);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  allowed([&] { parse_url(input); });
  allowed([&] { parse_options(input); });
  print_and_parse(input);
  const std::size_t end = input.find('\n');
  allowed([&] { parse_url(input.substr(0, end)); });
  if (end != std::string_view::npos) {
    conn::Options options;
    options.set("key", std::string(input.substr(end + 1)));
    read_options(options, "key");
    read_options(options, "absent");
  }
  return 0;
}
