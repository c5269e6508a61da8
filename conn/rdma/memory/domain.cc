// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/memory/domain.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Time for which unused memory and memory keys are kept, so that the next burst of connections can
// use them. They are freed about a minute after the last burst, because tick() notices late that
// they are unused.
constexpr ae::Duration kKeepUnused = std::chrono::seconds(45);
// Bytes for sent data in the first slab (piece of memory) of an unshared protection domain.
constexpr std::size_t kFirstToSend = 16 * 1024;

BlockPool::Config local_config(const Domain::Config& config) {
  BlockPool::Config blocks{.keep = kKeepUnused, .cache = true};
  if (config.shared) return blocks;
  const std::size_t receives = config.own_receives * kControlSize;
  blocks.first = std::bit_ceil(receives + kFirstToSend);
  return blocks;
}

}  // namespace

Domain::Domain(Device& device, PagePool& pages, const Config& config, const MemoryLimit& limit)
    : config_(config),
      hands_keys_on_(!device.keys_are_younger()),
      windows_are_regions_(!config.shared || device.keys_reach_whole_regions()),
      pages_(pages),
      pd_(alloc_pd(device.verbs())),
      local_(pages, pd_.get(), IBV_ACCESS_LOCAL_WRITE, local_config(config)),
      short_windows_(make_windows()),
      long_windows_(make_windows()),
      user_memory_(pd_.get(), pages.registrations().user_memory) {
  if (config.shared_receives == 0) return;
  receives_ = std::make_unique<ReceiveQueue>(local_, config.shared_receives, limit);
  srq_ = create_srq(pd_.get(), config.shared_receives);
  rings_ = Pinned(config.shared_receives * std::size_t{kControlSize});
  receives_->attach(srq_.get());
  if (const int err = receives_->replenish(); err != 0) throw VerbsError("ibv_post_srq_recv", err);
}

std::unique_ptr<RegisteredPool> Domain::make_windows() const {
  BlockPool::Config blocks{.keep = kKeepUnused};
  if (windows_are_regions_) blocks.first = blocks.largest = 0;
  const unsigned access = config_.bind_keys ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND
                                            : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  return std::make_unique<RegisteredPool>(pages_, pd_.get(), access, blocks);
}

BoundKey Domain::make_key() const {
  BoundKey key{alloc_mw(pd_.get())};
  if (!key.window) throw VerbsError("ibv_alloc_mw", errno);
  key.rkey = key.window->rkey;
  return key;
}

BoundKey Domain::take_key() {
  if (keys_.empty()) return make_key();
  BoundKey key = std::move(keys_.back());
  keys_.pop_back();
  key.unused_since = {};
  return key;
}

void Domain::keep_key(BoundKey key) noexcept {
  try {
    keys_.push_back(std::move(key));
  } catch (const std::bad_alloc&) {  // no memory to store the key: it is freed
  }
}

void Domain::keep_ready(std::size_t keys) {
  keys_ready_ = config_.bind_keys && hands_keys_on_ ? keys : 0;
  if (keys_.size() >= keys_ready_) return;
  keys_.reserve(keys_ready_);
  keys_.push_back(make_key());
}

void Domain::give_up_binding() {
  config_.bind_keys = config_.shared = false;
  short_windows_ = make_windows();
  long_windows_ = make_windows();
  keys_.clear();
  keys_ready_ = 0;
}

void Domain::leave_device() noexcept {
  user_memory_.clear();
  keys_.clear();
  srq_.reset();
  receives_.reset();
  rings_ = {};
  for (RegisteredPool* pool : {&local_, short_windows_.get(), long_windows_.get()})
    pool->leave_device();
  pd_.reset();
}

void Domain::tick(ae::TimePoint now) noexcept {
  std::size_t over = keys_.size() - std::min(keys_.size(), keys_ready_);
  std::erase_if(keys_, [&](BoundKey& key) {
    if (key.unused_since == ae::TimePoint{}) key.unused_since = now;
    if (over == 0 || now - key.unused_since < kKeepUnused) return false;
    --over;
    return true;
  });
}

}}}  // namespace conn::rdma
