// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/memory/blocks.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

constexpr std::size_t kDropsInTurn = 16;

// Stores the reason of a failure, the result of failure(), in `*why`, or out_of_memory() if there
// is no memory for its text. Does nothing if `why` is null.
template <typename Failing>
void tell(Failure* why, Failing failure) noexcept {
  if (why == nullptr) return;
  try {
    *why = failure();
  } catch (const std::bad_alloc&) {
    *why = out_of_memory();
  }
}

}  // namespace

// --- acquiring blocks ----------------------------------------------------------------------------

unsigned BlockPool::order_of(std::size_t size) noexcept {
  const std::size_t units = std::max<std::size_t>((size + kUnit - 1) / kUnit, 1);
  return static_cast<unsigned>(std::bit_width(units - 1));
}

Block* BlockPool::acquire(std::size_t size, const MemoryLimit& limit, Failure* why,
                          std::size_t slab) noexcept {
  if (limit.reserve != 0 && !limit.allows(size, idle())) {
    tell(why, memory_limit_reached);
    return nullptr;
  }
  Block* block = find(size, limit, why, slab);
  if (block != nullptr) used_ += block->size;
  return block;
}

Block* BlockPool::find(std::size_t size, const MemoryLimit& limit, Failure* why,
                       std::size_t slab) noexcept {
  const unsigned order = order_of(size);
  if (order < kOrders) {
    Cache& cache = caches_[order];
    if (cache.head != nullptr) {
      cache.least = std::min(cache.least, --cache.count);
      return std::exchange(cache.head, std::exchange(cache.head->next, nullptr));
    }
    if (Block* block = take(order)) return block;
    // Merges the cached blocks and tries again: small blocks may form a large one, and a large
    // block may be split.
    for (Cache& each : caches_) empty_cache(each, 0);
    if (Block* block = take(order)) return block;
  } else if (Block* block = take_whole(round_to_pages(size))) {
    return block;
  }
  try {
    grow(size, order, limit, slab);
    if (order < kOrders) return take(order);
    Block& block = slabs_.back()->units[0];
    block.free = false;
    return &block;
  } catch (const VerbsError& error) {
    tell(why, [&] { return error.failure(); });
  } catch (const std::bad_alloc&) {
    tell(why, out_of_memory);
  }
  return nullptr;
}

Block* BlockPool::acquire_zeros(std::size_t size, const MemoryLimit& limit, Failure* why) noexcept {
  assert(!config_.cache);
  Block* block = acquire(size, limit, why);
  if (block == nullptr) return nullptr;
  if (block->slab->count == 1) {
    if (block->dirty) std::memset(block->data, 0, block->size);
    return block;
  }
  Block* unit = block;
  for (std::size_t done = 0; done < block->size; done += kUnit, ++unit)
    if (unit->dirty)
      std::memset(block->data + done, 0, std::min<std::size_t>(kUnit, block->size - done));
  return block;
}

// Takes the smallest free block that is large enough, and splits it in halves until its size is 4
// KiB << order; the other halves become free blocks. Returns null if no free block is large enough.
// If each slab is to be one block, a larger one is not split.
Block* BlockPool::take(unsigned order) noexcept {
  const unsigned end = config_.largest != 0 ? kOrders : order + 1;
  unsigned found = order;
  while (found < end && free_[found] == nullptr) ++found;
  if (found == end) return nullptr;
  Block& block = *free_[found];
  unlink(block);
  while (found > order) {
    --found;
    Block& half = *(&block + (std::size_t{1} << found));
    half.order = static_cast<std::uint8_t>(found);
    link(half);
  }
  block.order = static_cast<std::uint8_t>(order);
  block.size = static_cast<std::uint32_t>(kUnit << order);
  block.next = nullptr;
  block.slab->empty_since = {};
  return &block;
}

Block* BlockPool::take_whole(std::size_t size) noexcept {
  for (const std::unique_ptr<Slab>& slab : slabs_) {
    if (!slab->whole || slab->size != size || !slab->units[0].free) continue;
    slab->units[0].free = false;
    slab->empty_since = {};
    return &slab->units[0];
  }
  return nullptr;
}

void BlockPool::grow(std::size_t size, unsigned order, const MemoryLimit& limit, std::size_t most) {
  slabs_.reserve(slabs_.size() + 1);
  const bool whole = order >= kOrders;
  const std::size_t least = whole ? round_to_pages(size) : kUnit << order;
  const std::size_t usual = std::clamp(std::bit_floor(bytes_ | 1),
                                       std::min(config_.first, config_.largest), config_.largest);
  const std::size_t wish = std::max(least, most != 0 ? std::min(usual, most) : usual);
  std::unique_ptr<Slab> slab;
  const auto make = [&](std::size_t bytes) {
    // These records of blocks are allocated before make_slab(), so that a lack of memory shows
    // before a slab (memory to be cut into blocks) exists. A slab that is never cut needs one.
    const std::size_t count = whole || config_.largest == 0 ? 1 : bytes / kUnit;
    auto units = std::make_unique<Block[]>(count);
    slab = make_slab(bytes, limit);
    slab->units = std::move(units);
    slab->count = static_cast<std::uint32_t>(count);
  };
  try {
    make(whole ? least : wish);
  } catch (const std::exception&) {
    if (whole || wish == least) throw;
    make(least);  // the larger size failed, but there may be memory for the least size
  }
  slab->whole = whole;
  for (std::size_t i = 0; i < slab->count; ++i) {
    slab->units[i].slab = slab.get();
    slab->units[i].data = slab->base + i * kUnit;
  }
  Block& all = slab->units[0];
  all.size = static_cast<std::uint32_t>(slab->size);
  bytes_ += slab->size;
  slabs_.push_back(std::move(slab));
  if (whole) return;
  all.order =
      static_cast<std::uint8_t>(config_.largest == 0 ? order : order_of(slabs_.back()->size));
  link(all);
}

// --- releasing blocks ----------------------------------------------------------------------------

void BlockPool::release(Block* block) noexcept {
  touched_ = true;
  used_ -= block->size;
  block->filled = block->posted = block->completed = 0;
  if (!config_.cache || block->slab->whole) return put(*block);
  Cache& cache = caches_[block->order];
  block->next = cache.head;
  cache.head = block;
  ++cache.count;
}

void BlockPool::put(Block& block) noexcept {
  const std::size_t units = block.slab->count == 1 ? 1 : std::size_t{1} << block.order;
  for (Block* unit = &block; unit != &block + units; ++unit) unit->dirty = true;
  if (block.slab->whole)
    block.free = true;
  else
    join(&block);
}

// Adds the block to the free ones. Merges it with the other half of the block that it was split
// from if that half is free, and repeats this with the merged block.
void BlockPool::join(Block* block) noexcept {
  Slab& slab = *block->slab;
  std::size_t index = static_cast<std::size_t>(block - slab.units.get());
  unsigned order = block->order;
  while ((std::size_t{1} << order) < slab.count) {
    const std::size_t other = index ^ (std::size_t{1} << order);
    Block& half = slab.units[other];
    if (!half.free || half.order != order) break;
    unlink(half);
    index = std::min(index, other);
    ++order;
  }
  Block& joined = slab.units[index];
  joined.order = static_cast<std::uint8_t>(order);
  link(joined);
}

void BlockPool::link(Block& block) noexcept {
  block.free = true;
  block.previous = nullptr;
  block.next = free_[block.order];
  if (block.next != nullptr) block.next->previous = &block;
  free_[block.order] = &block;
}

void BlockPool::unlink(Block& block) noexcept {
  block.free = false;
  (block.previous != nullptr ? block.previous->next : free_[block.order]) = block.next;
  if (block.next != nullptr) block.next->previous = block.previous;
  block.previous = block.next = nullptr;
}

void BlockPool::empty_cache(Cache& cache, std::size_t left) noexcept {
  while (cache.count > left) {
    --cache.count;
    Block& block = *std::exchange(cache.head, cache.head->next);
    put(block);
  }
  cache.least = cache.count;
}

// --- freeing unused memory -----------------------------------------------------------------------

bool BlockPool::empty(const Slab& slab) noexcept {
  const Block& first = slab.units[0];
  return first.free && (slab.count == 1 || std::size_t{1} << first.order == slab.count);
}

void BlockPool::drop(std::size_t index) noexcept {
  std::unique_ptr<Slab> slab = std::move(slabs_[index]);
  slabs_[index] = std::move(slabs_.back());
  slabs_.pop_back();
  if (!slab->whole) unlink(slab->units[0]);
  bytes_ -= slab->size;
}

bool BlockPool::tick(ae::TimePoint now) noexcept {
  if (!touched_) return false;
  std::size_t left = kDropsInTurn;
  // Merges the cached blocks that were not needed since the last tick(). Their number is `least`,
  // the smallest number of blocks that the cache contained since then.
  for (Cache& each : caches_) empty_cache(each, each.count - std::min(each.least, each.count));
  for (std::size_t i = slabs_.size(); i-- != 0;) {
    Slab& slab = *slabs_[i];
    if (!empty(slab)) continue;
    if (slab.empty_since == ae::TimePoint{}) slab.empty_since = now;
    if (now - slab.empty_since < config_.keep) continue;
    if (left-- == 0) return true;
    drop(i);
  }
  touched_ = !at_rest();
  return false;
}

void BlockPool::give_back() noexcept {
  for (Cache& each : caches_) empty_cache(each, 0);
  for (std::size_t i = slabs_.size(); i-- != 0;)
    if (empty(*slabs_[i])) drop(i);
}

bool BlockPool::give_back_one() noexcept {
  for (Cache& each : caches_) empty_cache(each, 0);
  for (std::size_t i = slabs_.size(); i-- != 0;)
    if (empty(*slabs_[i])) return drop(i), true;
  return false;
}

bool BlockPool::at_rest() const noexcept {
  return std::none_of(caches_.begin(), caches_.end(),
                      [](const Cache& each) { return each.count != 0; }) &&
         std::none_of(slabs_.begin(), slabs_.end(), [](const auto& slab) { return empty(*slab); });
}

void BlockPool::clear() noexcept {
  caches_ = {};
  free_ = {};
  slabs_.clear();
  bytes_ = used_ = 0;
}

// --- the pool of memory mappings -----------------------------------------------------------------

namespace {

// Time for which unused memory mappings are kept. It is short, because a RegisteredPool has kept
// the memory for some time before it releases it to this pool.
constexpr ae::Duration kKeepPages = std::chrono::seconds(5);

struct PageSlab final : Slab {
  explicit PageSlab(std::size_t bytes) : memory(bytes) {
    base = memory.data();
    size = memory.size();
  }
  PageMemory memory;
};

struct RegisteredSlab final : Slab {
  RegisteredSlab(PagePool& its_pages, Block& its_block) : pages(its_pages), block(its_block) {}
  ~RegisteredSlab() override {
    registration = {};
    pages.release(&block);
  }
  PagePool& pages;
  Block& block;
  Registration registration;
};

}  // namespace

PagePool::PagePool() : BlockPool({.keep = kKeepPages}) {}
PagePool::~PagePool() { clear(); }

std::unique_ptr<Slab> PagePool::make_slab(std::size_t size, const MemoryLimit&) {
  return std::make_unique<PageSlab>(size);
}

bool PagePool::tick_all(ae::TimePoint now) noexcept {
  bool more = false;
  for (RegisteredPool* pool = pools_; pool != nullptr; pool = pool->next_)
    if (pool->tick(now)) more = true;
  return tick(now) || more;
}

void PagePool::give_back_all() noexcept {
  for (RegisteredPool* pool = pools_; pool != nullptr; pool = pool->next_) pool->give_back();
  give_back();
}

bool PagePool::all_at_rest() const noexcept {
  for (const RegisteredPool* pool = pools_; pool != nullptr; pool = pool->next_)
    if (!pool->at_rest()) return false;
  return at_rest();
}

// --- pools of registered memory ------------------------------------------------------------------

RegisteredPool::RegisteredPool(PagePool& pages, ibv_pd* pd, unsigned access, const Config& config)
    : BlockPool(config), pages_(pages), pd_(pd), access_(access) {
  next_ = pages_.pools_;
  link_ = &pages_.pools_;
  if (next_ != nullptr) next_->link_ = &next_;
  pages_.pools_ = this;
}

RegisteredPool::~RegisteredPool() {
  *link_ = next_;
  if (next_ != nullptr) next_->link_ = link_;
  clear();
}

void RegisteredPool::leave_device() noexcept {
  for (const std::unique_ptr<Slab>& slab : all_slabs()) {
    slab->mr = nullptr;
    static_cast<RegisteredSlab&>(*slab).registration = {};
  }
}

std::unique_ptr<Slab> RegisteredPool::make_slab(std::size_t size, const MemoryLimit& limit) {
  if (!limit.allows(size)) {
    pages_.give_back_all();
    if (!limit.allows(size)) throw VerbsError(memory_limit_reached());
  }
  // Memory that a peer may write into must be zeroed: a peer may claim to have written bytes that
  // it never wrote, and must not make us read another connection's data.
  const bool peers_see_it = (access_ & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND)) != 0;
  Failure why;
  Block* block =
      peers_see_it ? pages_.acquire_zeros(size, {}, &why) : pages_.acquire(size, {}, &why);
  if (block == nullptr) throw VerbsError(std::move(why));
  std::unique_ptr<RegisteredSlab> slab;
  try {
    slab = std::make_unique<RegisteredSlab>(pages_, *block);
  } catch (const std::bad_alloc&) {
    pages_.release(block);
    throw;
  }
  slab->registration = Registration(pd_, block->data, block->size, access_);
  ++(peers_see_it ? pages_.registrations().windows : pages_.registrations().buffers);
  slab->base = block->data;
  slab->size = block->size;
  slab->mr = slab->registration.mr();
  return slab;
}

}}}  // namespace conn::rdma
