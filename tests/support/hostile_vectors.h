// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// All known ways to violate the Valkey Over RDMA protocol, one entry each: the rule that is
// violated, what the hostile peer does, and how this library must react. Run by
// tests/rdma/rdma_hostile_vectors_test.cc.

#include <functional>
#include <string>
#include <vector>

#include "tests/support/raw_peer.h"

namespace testing {

enum class Outcome {
  kError,    ///< this side ends the connection with `sentence` in its error
  kGoesOn,   ///< no violation that matters: the stream continues, both ways
  kGone,     ///< the peer leaves; however that is detected, nothing is left over
  kEither,   ///< a race decides between kError and kGoesOn; then the peer leaves
  kNoEntry,  ///< never becomes a connection; nothing is left although the peer stays
};

/// Which end is hostile: a client, a server, or either.
enum class Culprit { kClient, kServer, kBoth };

struct HostileVector {
  std::string name;
  std::string rule;  ///< of docs/valkey-over-rdma.md, or of rdma_cm
  Outcome outcome = Outcome::kError;
  std::string sentence;
  std::function<void(RawPeer&)> strike = {};
  RawOptions options = {};
  Culprit culprit = Culprit::kBoth;
  /// When to run `strike`.
  std::function<bool(const RawPeer&)> ready = [](const RawPeer& p) {
    return p.established && !p.offers.empty();
  };
  bool repeats = false;  ///< strikes until the connection has ended, while it can post
  RawNet::Answer answer = RawNet::Answer::kAccept;  ///< of a hostile server
  ae::Duration allowance = ae::Duration::zero();    ///< timer that runs before this side acts
  bool sends_immediate = false;                     ///< by SEND: some drivers take it for data
};

/// Options for the listener and the client, with short time-outs for the vectors that wait for one.
inline constexpr const char* kHostileOptions = "keepalive=200ms&accept-timeout=2s";
inline constexpr ae::Duration kHostileAcceptTimeout = std::chrono::seconds(2);
/// How long the device with the longest ACK delay (268 ms) retries before it gives up a peer that
/// does not answer.
inline constexpr ae::Duration kRetries = std::chrono::seconds(2);

std::vector<HostileVector> control_vectors();
std::vector<HostileVector> window_vectors();
std::vector<HostileVector> data_vectors();
std::vector<HostileVector> flood_vectors();
std::vector<HostileVector> receive_vectors();
std::vector<HostileVector> setup_vectors();

}  // namespace testing
