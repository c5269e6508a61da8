// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/errc.h"

#include <string>

#include "ae/once.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "tls"; }
  std::string message(int code) const override {
    switch (static_cast<Errc>(code)) {
      case Errc::kHandshake:
        return "the TLS handshake failed";
      case Errc::kVerification:
        return "a certificate was not accepted";
      case Errc::kTimeout:
        return "the TLS handshake took too long";
      case Errc::kTruncated:
        return "the TLS stream was cut short";
      case Errc::kProtocol:
        return "the peer broke the TLS protocol";
      case Errc::kTooManyMessages:
        return "too many TLS handshake messages";
    }
    return "unknown TLS error";
  }
  std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<Errc>(code)) {
      case Errc::kVerification:
        return std::errc::permission_denied;
      case Errc::kTimeout:
        return std::errc::timed_out;
      case Errc::kTruncated:
        return std::errc::connection_reset;
      default:
        return std::errc::protocol_error;
    }
  }
};

}  // namespace

const std::error_category& category() noexcept {
  return ae::once([] { return Category(); });
}

// Makes the category before main(), so that reporting a failure needs no memory for it.
[[maybe_unused]] static const std::error_category& category_made = category();

}}}  // namespace conn::tls
