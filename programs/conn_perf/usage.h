// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A user's mistakes in the command line, which end the program with status 2.

#include <string>

#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/registry.h"

namespace perf {

/// Its text is one sentence that says what to write instead.
class UsageError : public conn::Error {
 public:
  using conn::Error::Error;
};

/// Parses a URL of the command line and checks its transport and options. Throws UsageError.
inline conn::Endpoint endpoint_of(const conn::Registry& registry, const std::string& url) try {
  conn::Endpoint endpoint = conn::Endpoint::parse(url);
  registry.require(endpoint.scheme).check(endpoint);
  return endpoint;
} catch (const conn::Error& error) {
  throw UsageError(error.what());
}

}  // namespace perf
