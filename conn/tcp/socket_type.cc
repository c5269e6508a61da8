// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_type.h"

#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

void SocketType::configure(const Options& options) {
  // throws for a bad option, before anything is changed
  auto settings = std::make_shared<Settings>(parse(options));
  options_ = options;
  settings_ = std::move(settings);
}

std::shared_ptr<const Settings> SocketType::settings_for(const Options& endpoint) const {
  if (endpoint.empty()) return settings_;
  return std::make_shared<Settings>(parse(options_.merged_with(endpoint)));
}

void SocketType::check(const Endpoint& endpoint) const {
  try {
    if (endpoint.scheme != name()) {
      throw Error("this is not a " + std::string(name()) + " endpoint");
    }
    check_address(endpoint);
    if (!endpoint.options.empty()) (void)parse(endpoint.options);
  } catch (const Error& error) {
    throw Error(error.code(), endpoint.to_string() + ": " + error.what());
  }
}

}}}  // namespace conn::tcp
