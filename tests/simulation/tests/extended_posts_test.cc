// SPDX-License-Identifier: BSD-3-Clause
// ibv_wr_...(3): a message alone is posted with it on the devices whose drivers have it, and as
// before on others; what a driver has refused so is posted in the other way.

#include <string>

#include "tests/simulation/posts.h"
#include "tests/simulation/room.h"

using namespace simulation;

namespace {

/// Counts the posts of both kinds while it exists.
class Posts {
 public:
  Posts() {
    before_post = [this](QueuePair& qp, const ibv_send_wr&) {
      ++(qp.in_extended_post ? extended : plain);
    };
  }
  Posts(const Posts&) = delete;
  Posts& operator=(const Posts&) = delete;
  ~Posts() { before_post = nullptr; }
  int extended = 0, plain = 0;
};

}  // namespace

TEST_CASE("simulation: a message alone is posted with ibv_wr_...() where the driver has it",
          "[simulation][rdma][straight]") {
  for (const Profile* profile : serving_profiles_of_all_ages()) {
    CAPTURE(profile->name);
    Room room({}, {}, *profile, *profile);
    const conn::ConnectionPtr client = room.connected();
    for (const std::size_t size : {10u, 2000u}) {  // copied into the request, and not
      CAPTURE(size);
      Posts posts;
      for (int i = 0; i < 20; ++i) room.echoes(*client, size);
      CHECK((posts.extended >= 20) == profile->posts_extended());
      if (!profile->posts_extended()) CHECK(posts.extended == 0);
    }
  }
}

TEST_CASE("simulation: what ibv_wr_complete() refuses is posted in the other way",
          "[simulation][rdma][straight]") {
  for (const Profile* profile : serving_profiles_of_all_ages()) {
    if (!profile->posts_extended()) continue;
    CAPTURE(profile->name);
    Room room({}, {}, *profile, *profile);
    const conn::ConnectionPtr client = room.connected();
    int refused = 0;
    before_post = [&](QueuePair& qp, const ibv_send_wr&) {
      if (qp.in_extended_post && ++refused % 3 == 1) room.world.fail_call(1);
    };
    for (int i = 0; i < 20; ++i) room.echoes(*client, 10);
    before_post = nullptr;
    CHECK(refused != 0);
    CHECK(client->state() == conn::State::kConnected);
  }
}
