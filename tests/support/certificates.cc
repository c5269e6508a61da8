// SPDX-License-Identifier: BSD-3-Clause
#if AECONN_TLS
#include "tests/support/certificates.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace testing {
namespace {

using KeyPtr = std::shared_ptr<EVP_PKEY>;
using CertificatePtr = std::shared_ptr<X509>;

template <auto Free>
struct FreeWith {
  template <class T>
  void operator()(T* object) const noexcept {
    Free(object);
  }
};
template <class T, auto Free>
using Owned = std::unique_ptr<T, FreeWith<Free>>;

void require(bool good, const char* what) {
  if (good) return;
  char text[256];
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  ERR_clear_error();  // leaves no error in the thread's queue
  throw std::runtime_error(std::string("certificates: ") + what + ": " + text);
}

KeyPtr make_key(KeyType type) {
  EVP_PKEY* key = nullptr;
  switch (type) {
    case KeyType::kP256:
      key = EVP_EC_gen("P-256");
      break;
    case KeyType::kRsa2048:
      key = EVP_RSA_gen(2048);
      break;
    case KeyType::kRsa1024:
      key = EVP_RSA_gen(1024);
      break;
    case KeyType::kRsa512:
      key = EVP_RSA_gen(512);
      break;
  }
  require(key != nullptr, "make a key");
  return {key, EVP_PKEY_free};
}

void set_text(ASN1_STRING* string, std::string_view text) {
  require(ASN1_STRING_set(string, text.data(), static_cast<int>(text.size())) == 1, "set a text");
}

/// Made by hand, since the texts of openssl.cnf cannot contain a NUL.
GENERAL_NAME* make_name(std::string_view name) {
  const std::size_t colon = name.find(':');
  require(colon != std::string_view::npos, "a name needs its kind");
  const std::string_view kind = name.substr(0, colon), value = name.substr(colon + 1);
  GENERAL_NAME* made = GENERAL_NAME_new();
  if (kind == "IP") {
    ASN1_OCTET_STRING* address = a2i_IPADDRESS(std::string(value).c_str());
    require(address != nullptr, "parse an address");
    GENERAL_NAME_set0_value(made, GEN_IPADD, address);
    return made;
  }
  ASN1_IA5STRING* text = ASN1_IA5STRING_new();
  set_text(text, value);
  const int type = kind == "DNS" ? GEN_DNS : kind == "URI" ? GEN_URI : GEN_EMAIL;
  GENERAL_NAME_set0_value(made, type, text);
  return made;
}

void add_names(X509* certificate, const std::vector<std::string>& names) {
  if (names.empty()) return;
  GENERAL_NAMES* list = GENERAL_NAMES_new();
  for (const std::string& name : names) sk_GENERAL_NAME_push(list, make_name(name));
  const int added =
      X509_add1_ext_i2d(certificate, NID_subject_alt_name, list, 0, X509V3_ADD_APPEND);
  GENERAL_NAMES_free(list);
  require(added == 1, "add the names");
}

void add_extension(X509* certificate, X509* issuer, int nid, const std::string& text) {
  if (text.empty()) return;
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION, X509_EXTENSION_free> extension(
      X509V3_EXT_conf_nid(nullptr, &context, nid, text.c_str()));
  require(extension && X509_add_ext(certificate, extension.get(), -1) == 1, text.c_str());
}

void set_random_serial(X509* certificate) {
  std::uint64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial | 1);
}

/// Self-signed if there is no parent.
CertificatePtr make_certificate(const CertificateRequest& request, EVP_PKEY* key, X509* parent,
                                EVP_PKEY* parent_key) {
  const CertificatePtr made(X509_new(), X509_free);
  X509* const c = made.get();
  X509_set_version(c, X509_VERSION_3);
  set_random_serial(c);
  X509_gmtime_adj(X509_getm_notBefore(c), request.valid_from.count());
  X509_gmtime_adj(X509_getm_notAfter(c), request.valid_until.count());
  if (!request.common_name.empty()) {
    const auto* text = reinterpret_cast<const unsigned char*>(request.common_name.data());
    require(
        X509_NAME_add_entry_by_NID(X509_get_subject_name(c), NID_commonName, MBSTRING_UTF8, text,
                                   static_cast<int>(request.common_name.size()), -1, 0) == 1,
        "set the common name");
  }
  X509* const issuer = parent != nullptr ? parent : c;
  X509_set_issuer_name(c, X509_get_subject_name(issuer));
  X509_set_pubkey(c, key);
  add_extension(c, issuer, NID_basic_constraints, request.basic_constraints);
  add_extension(c, issuer, NID_key_usage, request.key_usage);
  add_extension(c, issuer, NID_ext_key_usage, request.extended_key_usage);
  add_extension(c, issuer, NID_subject_key_identifier, "hash");
  add_extension(c, issuer, NID_authority_key_identifier, "keyid");
  add_names(c, request.names);
  const EVP_MD* digest = EVP_get_digestbyname(request.digest.c_str());
  require(digest != nullptr && X509_sign(c, parent != nullptr ? parent_key : key, digest) > 0,
          "sign");
  return made;
}

// --- files ---

std::string new_path(const std::string& folder, const char* ending) {
  static std::atomic<int> count{0};
  return folder + "/" + std::to_string(++count) + ending;
}

std::string to_pem(X509* certificate) {
  const Owned<BIO, BIO_free> memory(BIO_new(BIO_s_mem()));
  require(PEM_write_bio_X509(memory.get(), certificate) == 1, "write a certificate");
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

std::string write_to(std::string path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("write " + path);
  return path;
}

std::string write_key(const std::string& folder, EVP_PKEY* key, const std::string& pass_phrase) {
  std::string path = new_path(folder, ".key");
  const Owned<BIO, BIO_free> file(BIO_new_file(path.c_str(), "w"));
  const auto* phrase = reinterpret_cast<const unsigned char*>(pass_phrase.data());
  require(file && PEM_write_bio_PrivateKey(
                      file.get(), key, pass_phrase.empty() ? nullptr : EVP_aes_256_cbc(),
                      pass_phrase.empty() ? nullptr : phrase, static_cast<int>(pass_phrase.size()),
                      nullptr, nullptr) == 1,
          "write a key");
  return path;
}

Identity write_identity(const std::string& folder, X509* certificate, EVP_PKEY* key,
                        const std::string& chain, const std::string& pass_phrase) {
  const std::string pem = to_pem(certificate);
  return {.cert = write_to(new_path(folder, ".pem"), pem),
          .chain = write_to(new_path(folder, "-chain.pem"), pem + chain),
          .key = write_key(folder, key, pass_phrase)};
}

CertificatePtr read_certificate(const std::string& path) {
  const Owned<BIO, BIO_free> file(BIO_new_file(path.c_str(), "r"));
  require(file != nullptr, path.c_str());
  const CertificatePtr read(PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr), X509_free);
  require(read != nullptr, path.c_str());
  return read;
}

}  // namespace

// --- authorities ---------------------------------------------------------------------------------

Authority::Authority(const TempFolder& folder, CertificateRequest request)
    : Authority(folder.path(), nullptr, std::move(request)) {}

Authority::Authority(const std::string& folder, const Authority* parent, CertificateRequest request)
    : folder_(folder), key_(make_key(request.key)) {
  if (request.common_name.empty()) request.common_name = "Test CA";
  if (request.basic_constraints == CertificateRequest().basic_constraints) {
    request.basic_constraints = "critical,CA:TRUE";
  }
  if (request.key_usage.empty()) request.key_usage = "critical,keyCertSign,cRLSign";
  certificate_ = make_certificate(request, key_.get(),
                                  parent != nullptr ? parent->certificate_.get() : nullptr,
                                  parent != nullptr ? parent->key_.get() : nullptr);
  const std::string pem = to_pem(certificate_.get());
  cert_ = write_to(new_path(folder_, "-ca.pem"), pem);
  key_file_ = write_key(folder_, key_.get(), request.pass_phrase);
  if (parent != nullptr) chain_ = pem + parent->chain_;
}

Authority Authority::intermediate(CertificateRequest request) const {
  return Authority(folder_, this, std::move(request));
}

Identity Authority::issue(const CertificateRequest& request) const {
  const KeyPtr key = make_key(request.key);
  const CertificatePtr made = make_certificate(request, key.get(), certificate_.get(), key_.get());
  return write_identity(folder_, made.get(), key.get(), chain_, request.pass_phrase);
}

std::string Authority::revoke(const std::vector<Identity>& revoked,
                              std::chrono::seconds valid_until) const {
  const Owned<X509_CRL, X509_CRL_free> list(X509_CRL_new());
  X509_CRL_set_version(list.get(), X509_CRL_VERSION_2);
  X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(certificate_.get()));
  const std::time_t now = std::time(nullptr);
  const std::time_t from = std::min<std::time_t>(now, now + valid_until.count()) - 3600;
  const Owned<ASN1_TIME, ASN1_TIME_free> begin(ASN1_TIME_set(nullptr, from));
  const Owned<ASN1_TIME, ASN1_TIME_free> end(ASN1_TIME_set(nullptr, now + valid_until.count()));
  X509_CRL_set1_lastUpdate(list.get(), begin.get());
  X509_CRL_set1_nextUpdate(list.get(), end.get());
  for (const Identity& one : revoked) {
    const CertificatePtr certificate = read_certificate(one.cert);
    X509_REVOKED* entry = X509_REVOKED_new();
    X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(certificate.get()));
    X509_REVOKED_set_revocationDate(entry, begin.get());
    require(X509_CRL_add0_revoked(list.get(), entry) == 1, "revoke");
  }
  X509_CRL_sort(list.get());
  require(X509_CRL_sign(list.get(), key_.get(), EVP_sha256()) > 0, "sign a revocation list");
  std::string path = new_path(folder_, "-crl.pem");
  const Owned<BIO, BIO_free> file(BIO_new_file(path.c_str(), "w"));
  require(file && PEM_write_bio_X509_CRL(file.get(), list.get()) == 1, "write a revocation list");
  return path;
}

Identity self_signed(const TempFolder& folder, const CertificateRequest& request) {
  const KeyPtr key = make_key(request.key);
  const CertificatePtr made = make_certificate(request, key.get(), nullptr, nullptr);
  return write_identity(folder.path(), made.get(), key.get(), "", request.pass_phrase);
}

// --- files ---------------------------------------------------------------------------------------

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("read " + path);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::string write_file(const TempFolder& folder, const std::string& name, std::string_view bytes) {
  return write_to(folder.path() + "/" + name, bytes);
}

std::string join_files(const TempFolder& folder, const std::vector<std::string>& paths) {
  std::string bytes;
  for (const std::string& path : paths) bytes += read_file(path);
  return write_to(new_path(folder.path(), "-joined.pem"), bytes);
}

// --- for tests that only need TLS to work --------------------------------------------------------

namespace {

struct TestCertificates {
  TestCertificates() : folder(std::make_unique<TempFolder>()) {
    const Authority authority(*folder);
    std::vector<std::string> names{"DNS:localhost", "IP:127.0.0.1", "IP:::1"};
    const char* rdma = std::getenv("AECONN_RDMA_ADDRESS");
    if (rdma != nullptr && *rdma != '\0') names.push_back(std::string("IP:") + rdma);
    ca = authority.cert();
    identity = authority.issue({.common_name = "test",
                                .names = std::move(names),
                                .extended_key_usage = "serverAuth,clientAuth"});
  }
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;
  ~TestCertificates() {
    if (getpid() != maker) (void)folder.release();  // the folder belongs to the parent
  }

  const pid_t maker = getpid();
  std::unique_ptr<TempFolder> folder;
  std::string ca;
  Identity identity;
};

const TestCertificates& test_certificates() {
  static const TestCertificates made;
  return made;
}

}  // namespace

const Identity& test_identity() { return test_certificates().identity; }
const std::string& test_ca() { return test_certificates().ca; }

std::string test_server_name(std::string_view transport) {
  return transport == "tls+memory" || transport == "tls+vsock" ? "localhost" : "";
}

conn::Options test_tls_options(const std::string& server_name) {
  conn::Options options{
      {"cert", test_identity().chain}, {"key", test_identity().key}, {"ca", test_ca()}};
  if (!server_name.empty()) options.set("server-name", server_name);
  // "1": all tests of TLS as if their URLs had the option
  if (const char* threads = std::getenv("AECONN_HANDSHAKE_THREADS"))
    options.set("handshake-threads", threads);
  return options;
}

}  // namespace testing

#endif  // AECONN_TLS
