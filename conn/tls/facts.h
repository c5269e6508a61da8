// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What an established TLS connection tells about itself, for people.

#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/tls/engine/engine.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Version, cipher, group, resumption, names and kernel TLS, for info().
std::vector<std::pair<std::string, std::string>> facts_of(const Engine& engine);
/// Version, cipher and kernel TLS in one line, for path().
std::string path_of(const Engine& engine);

}}}  // namespace conn::tls
