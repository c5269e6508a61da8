// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Encrypts plain text that comes in one piece or in several.

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>

#include "ae/abi.h"
#include "conn/tls/engine/engine.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

// Both encrypt record by record until all is taken or the wire takes no more. They return the bytes
// taken, or as Engine::write() if there are none.

ssize_t encrypt(Engine& engine, const char* bytes, std::size_t size);
/// Copies pieces into a shared record, in `scratch`, if that saves a record, since each record
/// costs the peer and us as much as a full one. Other pieces are encrypted in place. `gathered`
/// counts the bytes copied.
ssize_t encrypt_gathered(Engine& engine, const iovec* vectors, int count,
                         std::array<char, Engine::kRecord>& scratch, std::uint64_t& gathered);

}}}  // namespace conn::tls
