// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options of shm, parsed once per type, or per endpoint that has options of its own. The member
// initializers are the defaults.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "ae/abi.h"
#include "ae/spin.h"
#include "ae/time.h"
#include "conn/options.h"
#include "conn/tcp/settings.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

struct Settings {
  /// Options of the Unix socket that every connection has.
  std::shared_ptr<const tcp::Settings> socket = std::make_shared<const tcp::Settings>();
  std::uint32_t ring = 256 << 10;       ///< bytes of each ring of a connection that this side makes
  std::uint64_t max_ring = 16 << 20;    ///< bytes of the largest ring that a client may offer
  std::uint64_t read_budget = 1 << 20;  ///< bytes that read() returns in one iteration at most
  ae::Duration handshake_timeout = std::chrono::seconds(10);
  unsigned max_handshakes = 512;
  ae::Spin spin = {};
  /// Option shm-path: path of shm's Unix socket if the URL's hosts or path are for other schemes.
  std::string path;
};
using SettingsPtr = std::shared_ptr<const Settings>;

/// Returns the settings with `options` applied. Throws Error for an unknown option or a bad value.
SettingsPtr parse_settings(const Options& options);
const OptionTable& option_table();  ///< returns the table of options that parse_settings() accepts
/// Returns those of the options that are for the Unix socket.
Options socket_options(const Options& options);

}}}  // namespace conn::shm
