// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Registered memory of a simulated device, for tests of the parts of rdma that work on memory
// alone.

#include <optional>

#include "conn/rdma/memory/blocks.h"
#include "tests/simulation/objects.h"
#include "tests/simulation/world.h"

namespace simulation {

/// Two pools of registered memory of a simulated device.
class RegisteredMemory {
 public:
  RegisteredMemory() {
    simulation::Device& device = world_.add_device("sim0", "10.77.0.1", profile_named("mlx5"));
    context_ = ibv_open_device(&device.base);
    pd_ = ibv_alloc_pd(context_);
    pages_.emplace();
    const conn::rdma::BlockPool::Config config{.first = 4096, .largest = 1 << 20, .keep = {}};
    pool.emplace(*pages_, pd_, IBV_ACCESS_LOCAL_WRITE, config);
    other.emplace(*pages_, pd_, IBV_ACCESS_LOCAL_WRITE, config);
  }
  ~RegisteredMemory() {
    pool.reset();
    other.reset();
    pages_.reset();
    ibv_dealloc_pd(pd_);
    ibv_close_device(context_);
  }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  std::optional<conn::rdma::RegisteredPool> pool, other;

 private:
  World world_{Config{}};
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  std::optional<conn::rdma::PagePool> pages_;
};

/// No memory, except that an empty queue gets a small block if one is free in the pool.
inline constexpr conn::rdma::MemoryLimit kNothingMore{.most = 4};

}  // namespace simulation
