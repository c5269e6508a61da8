// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads the PEM files that options name. A problem with a file is thrown as an Error that names it.

#include <string>
#include <string_view>
#include <system_error>

#include "ae/abi.h"
#include "conn/tls/engine/openssl.h"
#include "conn/tls/engine/secret.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Returns the code of a file that cannot be used: the errno value `err` in a category of its own.
/// So ENOENT is not taken for the missing file of a Unix socket, whose peer does not listen.
std::error_code file_error(int err) noexcept;
/// Throws an Error with the text `what`, followed by the reason from OpenSSL's error queue. If that
/// is a failed system call, the code is file_error() of its errno value.
[[noreturn]] void fail(const std::string& what);
/// Opens the file `path` for reading. Throws an Error if that fails; its text names `what`, the
/// kind of contents (such as "the key"), and the description of errno.
BioPtr open_file(const std::string& path, const std::string& what);
/// Must be called after a PEM function found nothing. Returns true, and clears OpenSSL's error, if
/// the file simply ended, which is not an error.
bool at_end_of_pem();
/// Returns the first line of the file `path`, which holds a pass phrase.
Secret read_pass_phrase(const std::string& path);
/// Returns the private key from the file `path`. Decrypts it with `phrase` if it is encrypted.
KeyPtr read_key(const std::string& path, std::string_view phrase);

}}}  // namespace conn::tls
