// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Describes an established TLS connection in words, for logs and status output.

#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/tls/engine/engine.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Returns TLS version, cipher, group, resumption, names, kernel TLS and the ends of both
/// certificates, for Connection::info().
std::vector<std::pair<std::string, std::string>> facts_of(const Engine& engine);
/// Returns TLS version, cipher, group and kernel TLS of a connection in one line, for
/// Connection::path().
std::string path_of(const Engine& engine);

}}}  // namespace conn::tls
