// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The command line of the servers in this folder:
//
//   NAME-server tcp://ADDRESS:PORT | tls://ADDRESS:PORT [--cert FILE --key FILE] [--frames] [--work
//   N]
//
// Without --frames a server echoes its input; with it, it answers requests (frames.h).

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace peers {

/// Most bytes that one read asks for, in servers that can choose it: with much under way on a
/// connection 64 KiB cost the server two to three times as much for a byte.
inline constexpr std::size_t kReadSize = 256 * 1024;

struct Settings {
  std::string url, certificate, key;
  std::string address;     ///< of `url`, numeric
  std::uint16_t port = 0;  ///< of `url`
  bool tls = false;        ///< the scheme of `url` is tls
  bool frames = false;
  unsigned work = 0;  ///< rounds of frames.h's work() for each request
};

template <class Number>
Number number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::runtime_error("not a number in range: " + std::string(text));
  }
  return value;
}

/// Throws std::runtime_error with a sentence.
inline Settings parse(int argc, char** argv) {
  Settings set;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto next = [&] {
      if (++i == argc) throw std::runtime_error(std::string(word) + " needs a value");
      return argv[i];
    };
    if (word == "--cert") {
      set.certificate = next();
    } else if (word == "--key") {
      set.key = next();
    } else if (word == "--frames") {
      set.frames = true;
    } else if (word == "--work") {
      set.work = number<unsigned>(next());
    } else if (set.url.empty() && !word.starts_with("-")) {
      set.url = word;
    } else {
      throw std::runtime_error("unknown argument: " + std::string(word));
    }
  }
  const std::string_view url = set.url;
  const std::size_t colon = url.rfind(':');
  set.tls = url.starts_with("tls://");
  if ((!set.tls && !url.starts_with("tcp://")) || colon < 6) {
    throw std::runtime_error("give one URL: tcp://ADDRESS:PORT or tls://ADDRESS:PORT");
  }
  set.address = url.substr(6, colon - 6);
  set.port = number<std::uint16_t>(url.substr(colon + 1));
  return set;
}

inline void announce(const Settings& set) {
  std::printf("listening on %s\n", set.url.c_str());
  std::fflush(stdout);
}

/// main() of a server: `serve` runs it until a signal ends the process.
inline int run(int argc, char** argv, void (*serve)(const Settings&)) {
  try {
    serve(parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace peers
