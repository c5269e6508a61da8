// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/files.h"

#include <fcntl.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "ae/once.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

constexpr std::size_t kLongestPassPhrase = 1024;

struct Password {
  std::string_view phrase;
  bool asked = false;
};

int give_password(char* buffer, int size, int, void* argument) {
  auto& password = *static_cast<Password*>(argument);
  password.asked = true;
  if (password.phrase.size() > static_cast<std::size_t>(size)) return -1;
  std::copy(password.phrase.begin(), password.phrase.end(), buffer);
  return static_cast<int>(password.phrase.size());
}

class FileCategory final : public std::error_category {
 public:
  const char* name() const noexcept override { return "file"; }
  std::string message(int err) const override { return errno_text(err); }
  std::error_condition default_error_condition(int err) const noexcept override {
    return {err, std::generic_category()};
  }
};

[[noreturn]] void fail(int err, const std::string& what) {
  throw Error(file_error(err), what + ": " + errno_text(err));
}

}  // namespace

std::error_code file_error(int err) noexcept {
  return {err, ae::once([] { return FileCategory(); })};
}

// Makes the category before main(), so that reporting a failure needs no memory for it.
[[maybe_unused]] static const std::error_code file_category_made = file_error(0);

void fail(const std::string& what) {
  const unsigned long first = ERR_peek_error();
  const bool system = first != 0 && ERR_GET_LIB(first) == ERR_LIB_SYS;
  const std::error_code code = system ? file_error(ERR_GET_REASON(first)) : std::error_code();
  throw Error(code, what + ": " + take_errors("OpenSSL does not say why"));
}

BioPtr open_file(const std::string& path, const std::string& what) {
  ERR_clear_error();
  BioPtr file(BIO_new_file(path.c_str(), "r"));
  struct stat info {};
  if (file && stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    throw Error(file_error(EISDIR), "read " + what + " " + path + ": it is a folder");
  }
  if (!file) fail("read " + what + " " + path);
  return file;
}

bool at_end_of_pem() {
  const unsigned long error = ERR_peek_error();
  if (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    return false;
  }
  ERR_clear_error();
  return true;
}

Secret read_pass_phrase(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(errno, "read the pass phrase " + path);
  Secret text(kLongestPassPhrase);
  std::size_t size = 0;
  ssize_t n = 1;
  while (n > 0 && size < kLongestPassPhrase) {
    n = ::read(fd, text.data() + size, kLongestPassPhrase - size);
    if (n > 0) size += static_cast<std::size_t>(n);
  }
  const int err = n < 0 ? errno : 0;
  ::close(fd);
  if (err != 0) fail(err, "read the pass phrase " + path);
  const std::string_view all = text.view().substr(0, size);
  // keeps only the first line of the file
  text.shrink(std::min(all.find_first_of("\r\n"), all.size()));
  return text;
}

KeyPtr read_key(const std::string& path, std::string_view phrase) {
  const BioPtr file = open_file(path, "the key");
  Password password{phrase};
  KeyPtr key(PEM_read_bio_PrivateKey(file.get(), nullptr, give_password, &password));
  if (key) return key;
  ERR_clear_error();
  if (password.asked && phrase.empty()) {
    throw Error("the key " + path + " is encrypted: give its pass phrase, in key-pass-file=FILE");
  }
  if (password.asked) throw Error("the key " + path + " cannot be decrypted with this pass phrase");
  throw Error("the key " + path + " holds no private key in PEM form");
}

}}}  // namespace conn::tls
