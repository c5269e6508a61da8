// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One attempt of a Redial to connect.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/lists/dial.h"
#include "conn/redial.h"
#include "conn/redial/one_shot_timer.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns why `connection` has ended; `otherwise`: the text if it has no error.
Failure failure_of(const Connection& connection, const char* otherwise) noexcept;

/// It waits until the DialLimit grants a place, connects, and proves the connection with the
/// program's probe; it ends with a proven connection or a failure. Destroying it closes its
/// connection.
class Redial::Attempt {
 public:
  /// Receives the proven connection, or why there is none; also the schemes of a list that were
  /// skipped. Called once, by the loop; the attempt does not use itself afterwards, so that it may
  /// be destroyed.
  using Done = std::function<void(ConnectionPtr, Failure, std::vector<Skipped>)>;
  /// Whether the attempt tries all schemes of a list, or only the first.
  enum class Which : bool { kAny, kPreferred };

  /// `owner` must outlive the attempt. Throws std::bad_alloc.
  Attempt(Redial& owner, Which which, Done done);
  ~Attempt() { *alive_ = false; }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  /// Begins the attempt; to be called once. The program's handlers that this runs may destroy it.
  void start();

 private:
  bool show(Phase phase);
  void dial();
  void dialled(ConnectionPtr connection);
  void prove();
  void on_timer();
  void finish(Failure why);

  Redial& owner_;
  const Which which_;
  Done done_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  DialLimit::PlacePtr place_;
  bool begun_ = false;  // whether dial() was called
  const FallbackType* list_ = nullptr;
  std::unique_ptr<Dial> dial_;
  ConnectionPtr connection_;
  std::vector<Skipped> skipped_;
  // Limits the probe. While the attempt waits for a place of the DialLimit, looks whether it was
  // granted.
  OneShotTimer timer_;
  // The failure to report when timer_ expires; empty while the attempt waits for a place.
  Failure end_;
};

}}  // namespace conn
