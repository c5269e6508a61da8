// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Describes an established TLS connection, for people.

#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/tls/engine/engine.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Returns version, cipher, group, resumption, names and kernel TLS of a connection, for info().
std::vector<std::pair<std::string, std::string>> facts_of(const Engine& engine);
/// Returns version, cipher and kernel TLS of a connection in one line, for path().
std::string path_of(const Engine& engine);

}}}  // namespace conn::tls
