// SPDX-License-Identifier: BSD-3-Clause
#include "drop_ins/redis/releases.h"

#include <cstdio>

namespace aeconn_redis {

const Layout* layout = nullptr;

namespace {

// What every table has: all entries up to the synchronous calls but one, and the two functions for
// pending data.
constexpr std::uint64_t kCommon = (bits(kGetType, kSyncReadline) & ~bit(kCloseListener)) |
                                  bit(kHasPendingData) | bit(kProcessPendingData);
constexpr std::uint64_t kLoopChange = bit(kUnbindEventLoop) | bit(kRebindEventLoop);
constexpr std::uint64_t kThreadedState = bit(kPostponeUpdateState) | bit(kUpdateState);

constexpr Layout kRedis7 = {.members = kCommon | bit(kGetPeerCert),
                            .numbered = false,
                            .our_name = "aeconn",
                            .loops = false,
                            .multipath = false,
                            .flag_words = 0,
                            .listener_words = 1};

constexpr Layout with_loops(std::uint64_t more) {
  Layout result = kRedis7;
  result.members |= kLoopChange | more;
  result.loops = true;
  return result;
}
constexpr Layout kRedis8 = with_loops(0), kRedis86 = with_loops(bit(kGetPeerUser));

constexpr Layout kValkey80 = {.members = kCommon | kThreadedState | bit(kGetPeerCert),
                              .numbered = false,
                              .our_name = "aeconn",
                              .loops = false,
                              .multipath = false,
                              .flag_words = 1,
                              .listener_words = 2};

// From here on the server has settings for a type named rdma, which is ours.
constexpr Layout kValkey81 = {.members = kCommon | bit(kCloseListener) | kThreadedState |
                                         bit(kGetPeerCert) | bit(kIntegrityChecked),
                              .numbered = false,
                              .our_name = "rdma",
                              .loops = false,
                              .multipath = false,
                              .flag_words = 1,
                              .listener_words = 1};

// Its patch releases differ in what follows kUpdateState. All of that is optional, so it is left
// alone: neither looked at in the server's tables nor present in ours.
constexpr Layout kValkey90 = {.members = kCommon | bit(kCloseListener) | kThreadedState,
                              .numbered = true,
                              .our_name = "rdma",
                              .loops = false,
                              .multipath = true,
                              .flag_words = 1,
                              .listener_words = 1};

constexpr Layout with_tail(std::uint64_t more) {
  Layout result = kValkey90;
  result.members |= bits(kGetPeerCert, kIntegrityChecked) | more;
  result.flag_words = 2;
  return result;
}
constexpr Layout kValkey91 = with_tail(0), kValkey912 = with_tail(bit(kSyncHandlersInUpdateState));

struct Release {
  bool valkey;
  int major, minor, first_patch;
  const Layout* layout;
};
// Of rows that differ only in the patch, the last that is not newer than the server applies.
constexpr Release kReleases[] = {
    {false, 7, 2, 0, &kRedis7},  {false, 7, 4, 0, &kRedis7},  {false, 8, 0, 0, &kRedis8},
    {false, 8, 2, 0, &kRedis8},  {false, 8, 4, 0, &kRedis8},  {false, 8, 6, 0, &kRedis86},
    {true, 7, 2, 0, &kRedis7},   {true, 8, 0, 0, &kValkey80}, {true, 8, 1, 0, &kValkey81},
    {true, 9, 0, 0, &kValkey90}, {true, 9, 1, 0, &kValkey91}, {true, 9, 1, 2, &kValkey912},
};

}  // namespace

const Layout* layout_for(const Version& version) {
  int major = 0, minor = 0, patch = 0;
  if (std::sscanf(version.text.c_str(), "%d.%d.%d", &major, &minor, &patch) != 3) return nullptr;
  const Layout* found = nullptr;
  for (const Release& release : kReleases)
    if (release.valkey == version.valkey && release.major == major && release.minor == minor &&
        release.first_patch <= patch)
      found = release.layout;
  return found;
}

std::string served_releases() {
  std::string all;
  const Release* before = nullptr;
  for (const Release& release : kReleases) {
    const bool first = before == nullptr || before->valkey != release.valkey;
    const bool named = !first && before->major == release.major && before->minor == release.minor;
    if (first)
      all += before == nullptr ? "Redis " : " and Valkey ";
    else if (!named)
      all += ", ";
    if (!named) all += std::to_string(release.major) + "." + std::to_string(release.minor);
    before = &release;
  }
  return all;
}

}  // namespace aeconn_redis
