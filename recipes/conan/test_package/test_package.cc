// SPDX-License-Identifier: BSD-3-Clause
// Prints the transports in the package: tcp unix tls ...
#include <cstdio>
#include <string>

#include "ae/libev_loop.h"
#include "conn/transports/transports.h"

int main() {
  ae::LibevLoop loop;
  conn::Registry registry = conn::all_transports();
  std::string names;
  for (const auto& type : registry.types())
    names += (names.empty() ? "" : " ") + std::string(type->name());
  std::puts(names.c_str());
}
