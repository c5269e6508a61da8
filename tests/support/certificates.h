// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A small certificate authority for TLS tests. It writes PEM files to a folder.
//
//   Authority ca(folder);
//   Identity server = ca.issue({.common_name = "server", .names = {"DNS:localhost"}});
//   Authority between = ca.intermediate({.common_name = "Between"});
//   Identity far = between.issue({.common_name = "far"});  // far.chain holds both
#if AECONN_TLS

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "conn/options.h"
#include "tests/support/testing.h"

namespace testing {

enum class KeyType { kP256, kRsa2048, kRsa1024, kRsa512 };

/// Contents of a certificate. Empty texts leave that part out.
struct CertificateRequest {
  std::string common_name = {};         ///< may hold a NUL
  std::vector<std::string> names = {};  ///< "DNS:a.example", "IP:::1", "URI:...", "email:..."
  std::chrono::seconds valid_from = -std::chrono::hours(24);  ///< relative to now
  std::chrono::seconds valid_until = std::chrono::hours(24 * 30);
  KeyType key = KeyType::kP256;
  std::string digest = "sha256";
  std::string basic_constraints = "critical,CA:FALSE";
  std::string key_usage = {};           ///< as in openssl.cnf: "critical,digitalSignature"
  std::string extended_key_usage = {};  ///< "serverAuth,clientAuth"
  std::string pass_phrase = {};         ///< encrypts the file of the key
};

/// Paths of the files.
struct Identity {
  std::string cert;   ///< the certificate alone
  std::string chain;  ///< with the certificates between it and the root
  std::string key;
};

class Authority {
 public:
  /// A self-signed root.
  explicit Authority(const TempFolder& folder, CertificateRequest request = {});
  /// An intermediate CA that this one signs.
  Authority intermediate(CertificateRequest request = {.common_name = "Test Intermediate"}) const;
  Identity issue(const CertificateRequest& request) const;

  const std::string& cert() const noexcept { return cert_; }  ///< its own certificate
  const std::string& key() const noexcept { return key_file_; }
  /// A CRL that revokes these certificates of this CA; valid for a day by default.
  std::string revoke(const std::vector<Identity>& revoked,
                     std::chrono::seconds valid_until = std::chrono::hours(24)) const;

 private:
  Authority(const std::string& folder, const Authority* parent, CertificateRequest request);
  const std::string folder_;
  std::shared_ptr<EVP_PKEY> key_;
  std::shared_ptr<X509> certificate_;
  std::string cert_, key_file_;
  std::string chain_;  // the certificates below the root, as PEM: its own first
};

/// A self-signed certificate that belongs to no CA.
Identity self_signed(const TempFolder& folder, const CertificateRequest& request);

// --- files ---------------------------------------------------------------------------------------
std::string read_file(const std::string& path);
/// A new file in the folder; returns its path.
std::string write_file(const TempFolder& folder, const std::string& name, std::string_view bytes);
/// Concatenates files into one: several CAs or CRLs.
std::string join_files(const TempFolder& folder, const std::vector<std::string>& paths);

// --- for tests that only need TLS to work --------------------------------------------------------
/// A certificate for localhost, 127.0.0.1, ::1 and AECONN_RDMA_ADDRESS, for servers and clients.
/// Made once per process, in a folder that is removed at its end.
const Identity& test_identity();
const std::string& test_ca();
/// The options cert, key and ca for either role. `server_name` is for transports whose addresses
/// are not names.
conn::Options test_tls_options(const std::string& server_name = {});
/// The server name for test_tls_options() over a transport: "localhost" where addresses are no
/// names of the certificate, as those of memory and context IDs; else "", that of the address.
std::string test_server_name(std::string_view transport);

}  // namespace testing

#endif  // AECONN_TLS
