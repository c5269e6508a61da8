// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Ciphertext that was read from the wire (connection below TLS) but not used yet: it was read for a
// handshake step on another thread, or by a read() that could not use all of it. While there is
// any, the engine reads a Loan (loan.h), which returns these bytes before it reads the wire. No
// event of the wire announces them.

#include <memory>
#include <new>
#include <span>

#include "ae/abi.h"
#include "conn/tls/engine/loan.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class UnusedInput {
 public:
  /// `wire` is where the engine reads; it must outlive this object.
  explicit UnusedInput(CheckedWire& wire) noexcept : wire_(wire) {}

  /// Reads what the wire (connection below TLS) has now. Until take_back() the engine can read only
  /// these bytes, so that another thread may run it. Returns false, and changes nothing else, if
  /// there are none. Throws std::bad_alloc.
  bool lend() {
    if (!loan().fill()) return false;
    loan_->lend(true);
    return true;
  }
  /// Ends what lend() began: the engine may read the wire (connection below TLS) again. No effect
  /// if nothing is lent.
  void take_back() noexcept {
    if (loan_) loan_->lend(false);
  }
  /// Keeps bytes that were read and not used, in front of those that are kept already. Returns
  /// false, and keeps none of them, if memory runs out.
  bool put_back(std::span<const char> bytes) noexcept {
    try {
      loan().put_back(bytes);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  /// Returns whether unused bytes are left. If none are, makes the engine read the wire (connection
  /// below TLS) directly again.
  bool any() noexcept { return loan_ != nullptr && !end_if_empty(); }

 private:
  Loan& loan() {
    if (!loan_) loan_ = std::make_unique<Loan>(wire_.wire());
    wire_.use(*loan_);
    return *loan_;
  }
  bool end_if_empty() noexcept {
    if (!loan_->empty()) return false;
    wire_.use(loan_->wire());
    loan_.reset();
    return true;
  }

  CheckedWire& wire_;
  std::unique_ptr<Loan> loan_;  // null: there are no unused bytes
};

}}}  // namespace conn::tls
