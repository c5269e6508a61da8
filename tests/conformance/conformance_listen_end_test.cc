// SPDX-License-Identifier: BSD-3-Clause
// What the handlers of a listener own may be the listener itself.

#include <memory>

#include "tests/support/catch.h"
#include "tests/support/testing.h"

TEST_CASE("listen: a handler for refusals may own its listener when the loop ends",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    struct Owner {
      conn::ListenerPtr listener;
    };
    std::weak_ptr<Owner> watched;
    {
      testing::Site site(transport);
      const auto owner = std::make_shared<Owner>();
      owner->listener = site.listen([](conn::ConnectionPtr) {});
      owner->listener->on_refused([owner](const conn::Failure&) {});
      watched = owner;
    }
    CHECK(watched.expired());
  }
}
