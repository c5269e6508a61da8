// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/parked_ids.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

constexpr std::size_t kMostParked = 16384;

}  // namespace

void ParkedIds::reserve(std::size_t connections) {
  const std::size_t ids = parked_.size() + connecting_.size() + connections;
  for (std::vector<CmId>* list : {&parked_, &connecting_})
    if (list->capacity() < ids) list->reserve(std::max(ids, 2 * list->capacity()));
}

bool ParkedIds::full() const noexcept { return parked_.size() + connecting_.size() >= kMostParked; }

bool ParkedIds::may_release(const Device* ports) const noexcept {
  if (parked_.empty() || ports == nullptr) return !parked_.empty();
  return std::any_of(parked_.begin(), parked_.end(),
                     [&](const CmId& id) { return !ports->port_down(id->port_num); });
}

void ParkedIds::release_one(const Device* ports) noexcept {
  auto one = parked_.end() - 1;
  if (ports != nullptr)
    one = std::find_if(parked_.begin(), one,
                       [&](const CmId& id) { return !ports->port_down(id->port_num); });
  std::swap(*one, parked_.back());
  parked_.pop_back();
}

void ParkedIds::on_event(const CmEvent& event) noexcept {
  if (!ends_connect(event)) return;
  std::erase_if(connecting_, [&](const CmId& each) { return each.get() == event.id; });
}

void ParkedIds::give_up(Orphans& to) noexcept {
  const auto move = [](std::vector<CmId>& from, std::vector<CmId>& list) {
    list.insert(list.end(), std::make_move_iterator(from.begin()),
                std::make_move_iterator(from.end()));
    from.clear();
  };
  try {
    move(connecting_, to.connecting);
    move(parked_, to.parked);
  } catch (const std::bad_alloc&) {  // no memory to move the ids: destroying them here blocks
  }
}

}}}  // namespace conn::rdma
