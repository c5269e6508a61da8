// SPDX-License-Identifier: BSD-3-Clause
// The queue of the peer's probes that are not answered yet.
#if AECONN_RDMA

#include "conn/rdma/protocol/answer_queue.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

TEST_CASE("rdma answers: the oldest first, each once", "[rdma][stream]") {
  AnswerQueue answers;
  CHECK(answers.empty());
  CHECK_FALSE(answers.pop(0));
  REQUIRE(answers.push(7));
  REQUIRE(answers.push(8));
  REQUIRE(answers.push(7));
  CHECK_FALSE(answers.empty());
  CHECK(answers.count() == 3);
  CHECK(answers.at(0) == 7);
  CHECK(answers.at(1) == 8);
  CHECK(answers.at(2) == 7);
  CHECK_FALSE(answers.pop(8));  // not the oldest
  CHECK(answers.pop(7));
  CHECK_FALSE(answers.pop(7));
  CHECK(answers.pop(8));
  CHECK(answers.pop(7));
  CHECK(answers.empty());
}

TEST_CASE("rdma answers: so many and no more, wherever the ring begins", "[rdma][stream]") {
  AnswerQueue answers;
  for (std::uint16_t begin = 0; begin < 2 * AnswerQueue::kMost; ++begin) {
    for (std::uint16_t i = 0; i < AnswerQueue::kMost; ++i) REQUIRE(answers.push(i));
    REQUIRE_FALSE(answers.push(99));
    REQUIRE(answers.count() == AnswerQueue::kMost);
    for (std::uint16_t i = 0; i < AnswerQueue::kMost; ++i) {
      REQUIRE(answers.at(0) == i);
      REQUIRE(answers.pop(i));
    }
    REQUIRE(answers.empty());
    REQUIRE(answers.push(1));  // the next round begins one place further on
    REQUIRE(answers.pop(1));
  }
  REQUIRE(answers.push(5));
  answers.clear();
  CHECK(answers.empty());
  CHECK_FALSE(answers.pop(5));
}

}  // namespace
}}}  // namespace conn::rdma

#endif
