// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Every way we know to break Valkey Over RDMA, one entry each: which rule it breaks, what the peer
// does, and what has to follow on our side. tests/rdma/rdma_hostile_vectors_test.cc plays them.

#include <functional>
#include <string>
#include <vector>

#include "tests/support/raw_peer.h"

namespace testing {

enum class Outcome {
  kError,    ///< our side ends the connection, with `sentence` in its error
  kGoesOn,   ///< nothing was broken that matters: the stream goes on, both ways
  kGone,     ///< the peer leaves; however our side hears of it, nothing is left
  kEither,   ///< a race decides between an error and going on; then the peer leaves
  kNoEntry,  ///< it never becomes a connection, and nothing is left although the peer stays
};

/// Who misbehaves: a client of ours, a server of ours, or either.
enum class Culprit { kClient, kServer, kBoth };

struct HostileVector {
  std::string name;
  std::string rule;  ///< of docs/valkey-over-rdma.md, or of rdma_cm
  Outcome outcome = Outcome::kError;
  std::string sentence;
  std::function<void(RawPeer&)> strike = {};
  RawOptions options = {};
  Culprit culprit = Culprit::kBoth;
  /// When to strike.
  std::function<bool(const RawPeer&)> ready = [](const RawPeer& p) {
    return p.established && !p.offers.empty();
  };
  bool repeats = false;  ///< strikes until the connection is over, while there is room to post
  RawNet::Answer answer = RawNet::Answer::kAccept;  ///< of a hostile server
  ae::Duration allowance = ae::Duration::zero();    ///< a clock that runs before our side acts
  bool sends_immediate = false;                     ///< with a SEND: some drivers take it for data
};

/// What the listener and the client of the driver are told, so that clocks which a vector waits for
/// are short.
inline constexpr const char* kHostileOptions = "keepalive=200ms&accept-timeout=2s";
inline constexpr ae::Duration kHostileAcceptTimeout = std::chrono::seconds(2);
/// Until a device with the longest ACK delay of all (268 ms) gives up a peer that does not answer.
inline constexpr ae::Duration kRetries = std::chrono::seconds(2);

std::vector<HostileVector> control_vectors();
std::vector<HostileVector> window_vectors();
std::vector<HostileVector> data_vectors();
std::vector<HostileVector> flood_vectors();
std::vector<HostileVector> receive_vectors();
std::vector<HostileVector> setup_vectors();

}  // namespace testing
