// SPDX-License-Identifier: BSD-3-Clause
// The tables of allowed steps: phases, what rdma_cm knows, the end.
#if AECONN_RDMA

#include <array>
#include <cstddef>

#include "conn/rdma/protocol/end_step.h"
#include "conn/rdma/protocol/stage.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

constexpr std::array kPhases = {Phase::kIdle,          Phase::kResolving, Phase::kConnecting,
                                Phase::kAccepting,     Phase::kOpen,      Phase::kHalfClosed,
                                Phase::kClosing,       Phase::kResending, Phase::kLost,
                                Phase::kDisconnecting, Phase::kDead};
constexpr std::array kSteps = {EndStep::kNone,     EndStep::kStreamOver, EndStep::kStopQueued,
                               EndStep::kUnsent,   EndStep::kSent,       EndStep::kToReap,
                               EndStep::kQuieting, EndStep::kGone};
constexpr std::array kHandshakes = {Handshake::kNone, Handshake::kUnderWay, Handshake::kAnswered,
                                    Handshake::kKnown, Handshake::kGone};

TEST_CASE("rdma steps: the end goes one way, from every step to the last", "[rdma][steps]") {
  for (const EndStep from : kSteps) {
    CHECK_FALSE(allowed(from, from));
    CHECK(allowed(from, EndStep::kGone) == (from != EndStep::kGone));
    for (const EndStep to : kSteps)
      if (allowed(from, to)) CHECK(from < to);
  }
}

TEST_CASE("rdma steps: each step of the end belongs to phases that follow each other",
          "[rdma][steps]") {
  for (const Phase phase : kPhases) {
    std::size_t count = 0;
    for (const EndStep step : kSteps) count += fits(step, phase) ? 1 : 0;
    CAPTURE(to_string(phase));
    CHECK(count >= 1);
  }
  // A step that is allowed keeps the phase, or goes with a step of the phase that is allowed.
  for (const EndStep from : kSteps)
    for (const EndStep to : kSteps) {
      if (!allowed(from, to)) continue;
      bool possible = false;
      for (const Phase before : kPhases)
        for (const Phase after : kPhases)
          if (fits(from, before) && fits(to, after) && (before == after || allowed(before, after)))
            possible = true;
      CAPTURE(static_cast<int>(from), static_cast<int>(to));
      CHECK(possible);
    }
}

TEST_CASE("rdma steps: what rdma_cm knows only grows, until its id is destroyed", "[rdma][steps]") {
  for (const Handshake from : kHandshakes)
    for (const Handshake to : kHandshakes)
      if (to != Handshake::kNone && allowed(from, to)) CHECK(from < to);
  Stage stage;
  stage.advance(Handshake::kAnswered);  // nothing is under way
  CHECK(stage.handshake() == Handshake::kNone);
  stage.advance(Handshake::kUnderWay);
  stage.advance(Handshake::kGone);
  stage.advance(Handshake::kKnown);
  CHECK(stage.handshake() == Handshake::kGone);
  stage.advance(Handshake::kNone);
  stage.advance(Handshake::kUnderWay);
  CHECK(stage.handshake() == Handshake::kUnderWay);
}

TEST_CASE("rdma steps: what a phase is called", "[rdma][steps]") {
  Stage stage;
  CHECK_FALSE(stage.connecting());
  stage.move(Phase::kResolving);
  CHECK(stage.connecting());
  stage.move(Phase::kConnecting);
  CHECK(stage.connecting());
  stage.move(Phase::kOpen);
  CHECK(stage.open());
  stage.move(Phase::kClosing);
  CHECK(stage.open());
  CHECK_FALSE(stage.ended());
  stage.move(Phase::kDisconnecting);
  CHECK(stage.ended());
  CHECK_FALSE(stage.open());
  stage.move(Phase::kDead);
  CHECK(stage.ended());
}

}  // namespace
}}}  // namespace conn::rdma

#endif
