// SPDX-License-Identifier: BSD-3-Clause
#include "programs/doctor/limits.h"

#include <nlohmann/json.hpp>

#include "programs/service/standard_streams.h"

namespace doctor {
namespace {

nlohmann::ordered_json json_of(const conn::Capacity& each, std::uint64_t asked_for) {
  return {{"limit", each.name},
          {"most", each.most},
          {"used", each.used},
          {"needed", each.needed},
          {"unit", each.bytes ? "bytes" : "count"},
          {"connections", each.connections},
          {"enough", each.enough()},
          {"text", each.text(asked_for)}};
}

}  // namespace

bool print_limits(const conn::Registry& registry, const std::string& url, std::uint64_t connections,
                  bool json) {
  const conn::Endpoint endpoint = conn::Endpoint::parse(url);
  bool enough = true;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const conn::Capacity& each :
       registry.require(endpoint.scheme).capacity(endpoint, connections)) {
    enough = enough && each.enough();
    if (json)
      all.push_back(json_of(each, connections));
    else
      service::print((each.enough() ? "ok   " : "LOW  ") + each.text(connections) + '\n');
  }
  if (json)
    service::print(
        nlohmann::ordered_json{
            {"url", url}, {"connections", connections}, {"enough", enough}, {"limits", all}}
            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
        '\n');
  return enough;
}

}  // namespace doctor
