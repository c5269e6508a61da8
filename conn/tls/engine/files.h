// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The PEM files that options name. What is wrong with one becomes an Error that says its name.

#include <string>
#include <string_view>

#include "ae/abi.h"
#include "conn/tls/engine/openssl.h"
#include "conn/tls/engine/secret.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Throws an Error of `what` and OpenSSL's reason.
[[noreturn]] void fail(const std::string& what);
/// Opens for reading. The sentence says why a file cannot be read in errno's words.
BioPtr open_file(const std::string& path, const std::string& what);
/// After a PEM function found nothing: not an error where the file simply ended.
bool at_end_of_pem();
/// The first line of the file.
Secret read_pass_phrase(const std::string& path);
/// Decrypts it with `phrase` if it is encrypted.
KeyPtr read_key(const std::string& path, std::string_view phrase);

}}}  // namespace conn::tls
