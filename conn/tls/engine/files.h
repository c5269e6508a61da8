// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads the PEM files that options name. A problem with a file is thrown as an Error that names it.

#include <string>
#include <string_view>

#include "ae/abi.h"
#include "conn/tls/engine/openssl.h"
#include "conn/tls/engine/secret.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Throws an Error with the text `what` and OpenSSL's reason.
[[noreturn]] void fail(const std::string& what);
/// Opens for reading. If that fails, the Error gives the description of errno. `what`: what the
/// file contains, for that text.
BioPtr open_file(const std::string& path, const std::string& what);
/// To be called after a PEM function found nothing: true if the file simply ended, which is not an
/// error.
bool at_end_of_pem();
/// Reads the first line of the file.
Secret read_pass_phrase(const std::string& path);
/// Reads a private key and decrypts it with `phrase` if it is encrypted.
KeyPtr read_key(const std::string& path, std::string_view phrase);

}}}  // namespace conn::tls
