// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/settings.h"

#include <string>

#include "ae/once.h"
#include "conn/error.h"
#include "conn/shm/hello.h"
#include "conn/url/spin_option.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

using namespace std::chrono_literals;

const OptionTable& option_table() {
  using Row = OptionRow;
  constexpr OptionSide kListener = OptionSide::kListener, kBoth = OptionSide::kBoth;
  return ae::once([] {
    const Settings d;
    std::vector<OptionRow> rows;
    for (const char* const name :
         {"backlog", "accept-batch", "max-connections", "mode", "group", "idle-timeout"})
      rows.push_back(*tcp::unix_options().find(name));
    std::vector<OptionRow> own{
        Row::text("shm-path", kBoth, "", "a path, or `@` and a name",
                  "shm's own socket, where a list of schemes has shm in it")
            .of(OptionPlace::kFile),
        Row::duration("connect-timeout", OptionSide::kConnecting, tcp::Settings().connect_timeout,
                      1ms, 24h, "until the server's answer is there"),
        Row::bytes("ring", OptionSide::kConnecting, d.ring, kLeastRing, kMostRing,
                   "of each direction; a power of two"),
        Row::bytes("max-ring", kListener, d.max_ring, kLeastRing, kMostRing,
                   "largest ring that a client may bring"),
        Row::duration("handshake-timeout", kListener, d.handshake_timeout, 1ms, 1h,
                      "until the client's hello is there"),
        Row::number("max-handshakes", kListener, d.max_handshakes, 1, 1'000'000,
                    "at once; one more ends the oldest"),
        Row::bytes("read-budget", kBoth, d.read_budget, 4096, kMostRing,
                   "most that one connection reads in one iteration")
            .tuning()};
    rows.insert(rows.end(), own.begin(), own.end());
    const std::vector<OptionRow> spin = spin_rows();
    rows.insert(rows.end(), spin.begin(), spin.end());
    return OptionTable("shm", {{"", std::move(rows)}});
  });
}

Options socket_options(const Options& options) {
  Options all;
  for (const auto& [key, value] : options.values())
    if (option_table().has(key) && tcp::unix_options().has(key)) all.set(key, value);
  return all;
}

SettingsPtr parse_settings(const Options& options) {
  option_table().only(options);
  OptionReader read(option_table(), options);
  Settings s;
  s.socket = std::make_shared<const tcp::Settings>(tcp::unix_settings(socket_options(options)));
  const std::uint64_t ring = read.number("ring");
  if (!is_ring_size(ring))
    throw Error("option ring=" + options.text("ring", "") +
                ": must be a power of two, such as 256k");
  s.ring = static_cast<std::uint32_t>(ring);
  s.max_ring = read.number("max-ring");
  s.read_budget = read.number("read-budget");
  s.handshake_timeout = read.duration("handshake-timeout");
  s.max_handshakes = static_cast<unsigned>(read.number("max-handshakes"));
  s.spin = spin_from(read);
  s.path = read.text("shm-path");
  if (s.path.empty() && read.given("shm-path")) throw Error("option shm-path: the path is missing");
  return std::make_shared<const Settings>(s);
}

}}}  // namespace conn::shm
