// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Encrypts plain text that lies in one piece of memory or in several.

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>

#include "ae/abi.h"
#include "conn/tls/engine/engine.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

// These functions encrypt record by record until all bytes are taken or the wire (connection below
// TLS) takes no more. They return the number of bytes taken or, if none were, -1 with errno as
// Engine::write() sets it.

ssize_t encrypt(Engine& engine, const char* bytes, std::size_t size);
/// For data of more than one record: gathers records in `room` and passes them to the wire
/// (connection below TLS) together, since a system call and the peer's wake-up cost more than
/// copying a record. If `room` is too small for a record, does the same as encrypt().
ssize_t encrypt_large(Engine& engine, const char* bytes, std::size_t size, std::span<char> room);
/// Encrypts several pieces of memory. Copies pieces into a shared record, in `scratch`, if that
/// saves a record, since a short record costs both sides as much as a full one. Other pieces are
/// encrypted in place. Adds the number of bytes copied to `gathered`. `room` is used as in
/// encrypt_large().
ssize_t encrypt_gathered(Engine& engine, const iovec* vectors, int count,
                         std::array<char, Engine::kRecord>& scratch, std::uint64_t& gathered,
                         std::span<char> room = {});

}}}  // namespace conn::tls
