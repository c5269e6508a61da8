// SPDX-License-Identifier: BSD-3-Clause
// The two ends of a stream as states: which steps are allowed, what holds in each state, and which
// step each event leads to.
#if AECONN_RDMA

#include <array>
#include <optional>
#include <set>
#include <utility>

#include "conn/rdma/protocol/our_end.h"
#include "conn/rdma/protocol/peer_end.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using Our = OurEndState;
using Peer = PeerEndState;

constexpr std::array kOurStates = {Our::kOpen,     Our::kEnded,    Our::kLeft, Our::kEndDue,
                                   Our::kLeaveDue, Our::kAbortDue, Our::kOver};
constexpr std::array kPeerStates = {Peer::kFailed, Peer::kOpen,  Peer::kGone,
                                    Peer::kClosed, Peer::kEnded, Peer::kLeft};

// --- our end -------------------------------------------------------------------------------------

// Returns an end in this state.
OurEnd our_end(Our state) {
  OurEnd end;
  if (state == Our::kEndDue || state == Our::kEnded) (void)end.finish(false, true);
  if (state == Our::kLeaveDue || state == Our::kLeft) (void)end.finish(true, true);
  if (state == Our::kAbortDue || state == Our::kOver) end.abort(true);
  if (state == Our::kEnded || state == Our::kLeft || state == Our::kOver) end.on_posted();
  REQUIRE(end.state() == state);
  return end;
}

TEST_CASE("rdma our end: every allowed step is allowed, and no other", "[rdma][stream][steps]") {
  const std::set<std::pair<Our, Our>> steps = {
      {Our::kOpen, Our::kEndDue},   {Our::kOpen, Our::kLeaveDue},
      {Our::kOpen, Our::kAbortDue}, {Our::kOpen, Our::kOver},
      {Our::kEndDue, Our::kEnded},  {Our::kEndDue, Our::kLeaveDue},
      {Our::kEndDue, Our::kOpen},   {Our::kEndDue, Our::kAbortDue},
      {Our::kEndDue, Our::kOver},   {Our::kEnded, Our::kLeaveDue},
      {Our::kEnded, Our::kOpen},    {Our::kEnded, Our::kAbortDue},
      {Our::kEnded, Our::kOver},    {Our::kLeaveDue, Our::kLeft},
      {Our::kLeaveDue, Our::kOpen}, {Our::kLeaveDue, Our::kAbortDue},
      {Our::kLeaveDue, Our::kOver}, {Our::kLeft, Our::kOpen},
      {Our::kLeft, Our::kAbortDue}, {Our::kLeft, Our::kOver},
      {Our::kAbortDue, Our::kOver},
  };
  for (const Our from : kOurStates)
    for (const Our to : kOurStates) {
      CAPTURE(static_cast<int>(from), static_cast<int>(to));
      CHECK(allowed(from, to) == steps.contains({from, to}));
    }
}

TEST_CASE("rdma our end: what holds in each state", "[rdma][stream][steps]") {
  for (const Our state : kOurStates) {
    CAPTURE(static_cast<int>(state));
    const OurEnd end = our_end(state);
    CHECK(end.aborted() == (state == Our::kAbortDue || state == Our::kOver));
    CHECK(end.finish_is_due() == (state == Our::kEndDue || state == Our::kLeaveDue));
    CHECK(end.says_leaves() == (state == Our::kLeaveDue));
    CHECK(end.abort_is_due() == (state == Our::kAbortDue));
    CHECK(end.finished(true) == (state == Our::kLeft));
    CHECK(end.finished(false) == (state == Our::kLeft || state == Our::kEnded));
    if (end.finish_is_due() || end.abort_is_due()) CHECK(end.may_have_message());
    if (state == Our::kOpen || state == Our::kEnded || state == Our::kLeft)
      CHECK_FALSE(end.may_have_message());
  }
}

TEST_CASE("rdma our end: where each call leads from each state", "[rdma][stream][steps]") {
  struct Row {
    Our from;
    // After finish(false) and finish(true) of a stream that resumes, then of one that does not.
    Our ends, leaves, ends_plain, leaves_plain;
    std::optional<Our> posted, anew;
  };
  using enum OurEndState;
  const Row row = GENERATE(Row{kOpen, kEndDue, kLeaveDue, kLeaveDue, kLeaveDue, {}, kOpen},
                           Row{kEnded, kEnded, kLeaveDue, kLeaveDue, kLeaveDue, {}, kOpen},
                           Row{kLeft, kLeft, kLeft, kLeft, kLeft, {}, kOpen},
                           Row{kEndDue, kEndDue, kLeaveDue, kLeaveDue, kLeaveDue, kEnded, kOpen},
                           Row{kLeaveDue, kLeaveDue, kLeaveDue, kLeaveDue, kLeaveDue, kLeft, kOpen},
                           Row{kAbortDue, kAbortDue, kAbortDue, kAbortDue, kAbortDue, kOver, {}},
                           Row{kOver, kOver, kOver, kOver, kOver, {}, {}});
  CAPTURE(static_cast<int>(row.from));
  for (const bool resumes : {true, false})
    for (const bool leaves : {true, false}) {
      CAPTURE(resumes, leaves);
      OurEnd end = our_end(row.from);
      const Our to =
          resumes ? (leaves ? row.leaves : row.ends) : (leaves ? row.leaves_plain : row.ends_plain);
      CHECK(end.finish(leaves, resumes) == (to != row.from));
      CHECK(end.state() == to);
    }
  for (const bool tells : {true, false}) {
    OurEnd end = our_end(row.from);
    const bool before = end.aborted();
    end.abort(tells);
    CHECK(end.state() == (before ? row.from : tells ? kAbortDue : kOver));
  }
  if (row.posted) {
    OurEnd end = our_end(row.from);
    end.on_posted();
    CHECK(end.state() == *row.posted);
  }
  if (row.anew) {
    OurEnd end = our_end(row.from);
    end.begin_path();
    CHECK(end.state() == *row.anew);
  }
}

// --- the peer's end ------------------------------------------------------------------------------

// Returns an end in this state.
PeerEnd peer_end(Peer state) {
  PeerEnd end;
  if (state == Peer::kFailed) end.on_failed();
  if (state == Peer::kClosed || state == Peer::kGone) end.on_closed();
  if (state == Peer::kGone) end.on_failed();
  if (state == Peer::kEnded) end.on_finished(false);
  if (state == Peer::kLeft) end.on_finished(true);
  REQUIRE(end.state() == state);
  return end;
}

TEST_CASE("rdma peer's end: every allowed step is allowed, and no other", "[rdma][stream][steps]") {
  const std::set<std::pair<Peer, Peer>> steps = {
      {Peer::kOpen, Peer::kEnded},  {Peer::kOpen, Peer::kLeft},   {Peer::kOpen, Peer::kClosed},
      {Peer::kOpen, Peer::kFailed}, {Peer::kFailed, Peer::kOpen}, {Peer::kFailed, Peer::kGone},
      {Peer::kEnded, Peer::kLeft},  {Peer::kEnded, Peer::kGone},  {Peer::kLeft, Peer::kGone},
      {Peer::kClosed, Peer::kGone},
  };
  for (const Peer from : kPeerStates)
    for (const Peer to : kPeerStates) {
      CAPTURE(static_cast<int>(from), static_cast<int>(to));
      CHECK(allowed(from, to) == steps.contains({from, to}));
    }
}

TEST_CASE("rdma peer's end: what holds in each state", "[rdma][stream][steps]") {
  for (const Peer state : kPeerStates) {
    CAPTURE(static_cast<int>(state));
    const PeerEnd end = peer_end(state);
    CHECK(end.takes_data() == (state == Peer::kOpen || state == Peer::kClosed));
    CHECK(end.input_over() == (state != Peer::kOpen && state != Peer::kFailed));
    CHECK(end.finished() == (state == Peer::kEnded || state == Peer::kLeft));
    CHECK(end.leaves() == (state == Peer::kLeft));
    CHECK(end.closed() == (state == Peer::kClosed || state == Peer::kGone));
    CHECK_FALSE(end.aborted());
  }
}

TEST_CASE("rdma peer's end: where each event leads from each state", "[rdma][stream][steps]") {
  struct Row {
    Peer from, ended, left, closed, failed;
    std::optional<Peer> anew;
  };
  using enum PeerEndState;
  const Row row = GENERATE(Row{kOpen, kEnded, kLeft, kClosed, kFailed, kOpen},
                           Row{kFailed, kFailed, kFailed, kGone, kFailed, kOpen},
                           Row{kEnded, kEnded, kLeft, kGone, kEnded, kEnded},
                           Row{kLeft, kLeft, kLeft, kGone, kLeft, kLeft},
                           Row{kClosed, kGone, kGone, kClosed, kGone, {}},
                           Row{kGone, kGone, kGone, kGone, kGone, {}});
  CAPTURE(static_cast<int>(row.from));
  const auto after = [&](auto event) {
    PeerEnd end = peer_end(row.from);
    event(end);
    return end.state();
  };
  CHECK(after([](PeerEnd& end) { end.on_finished(false); }) == row.ended);
  CHECK(after([](PeerEnd& end) { end.on_finished(true); }) == row.left);
  CHECK(after([](PeerEnd& end) { end.on_closed(); }) == row.closed);
  CHECK(after([](PeerEnd& end) { end.on_failed(); }) == row.failed);
  CHECK(after([](PeerEnd& end) { end.on_aborted(); }) == row.from);
  if (row.anew) CHECK(after([](PeerEnd& end) { end.begin_path(); }) == *row.anew);
  for (const bool leaves : {true, false})
    CHECK(peer_end(row.from).is_news(leaves) == ((leaves ? row.left : row.ended) != row.from));
}

TEST_CASE("rdma peer's end: an abort is recorded in whatever state, and stays",
          "[rdma][stream][steps]") {
  for (const Peer state : kPeerStates) {
    PeerEnd end = peer_end(state);
    end.on_aborted();
    end.on_closed();
    CHECK(end.aborted());
  }
}

}  // namespace
}}}  // namespace conn::rdma

#endif
