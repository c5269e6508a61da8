// SPDX-License-Identifier: BSD-3-Clause
#include "conn/registry.h"

#include <exception>
#include <mutex>

#include "ae/core/fork.h"
#include "conn/core/transport.h"
#include "conn/error.h"
#include "conn/fallback_type.h"

namespace conn { inline namespace AECONN_ABI {

/// The types of lists of schemes such as rdma|tcp. They are in an object of their own, whose
/// address stays the same when the registry is moved, because each FallbackType refers to `report`,
/// the program's handler.
struct Registry::Lists {
  ae::Mutex mutex;
  // The types of the lists used so far; guarded by `mutex`.
  std::vector<std::unique_ptr<FallbackType>> types;
  FallbackHandler report;
};

Registry::Registry() : lists_(std::make_unique<Lists>()) {}
Registry::Registry(Registry&&) noexcept = default;
Registry& Registry::operator=(Registry&&) noexcept = default;
Registry::~Registry() = default;

void Registry::on_fallback(FallbackHandler handler) { lists_->report = std::move(handler); }

ConnectionType& Registry::add(std::unique_ptr<Transport> type) {
  if (find(type->name()) != nullptr) {
    throw Error("the transport " + std::string(type->name()) + " is already registered");
  }
  // A transport that is added now is no longer reported as unavailable.
  std::erase_if(unavailable_, [&](const auto& entry) { return entry.first == type->name(); });
  types_.reserve(types_.size() + 1);
  owned_.push_back(std::move(type));
  types_.push_back(owned_.back().get());
  return *types_.back();
}

void Registry::add_unavailable(std::string name, std::string reason) {
  if (find(name) == nullptr) unavailable_.emplace_back(std::move(name), std::move(reason));
}

ConnectionType* Registry::find(std::string_view name) const {
  for (ConnectionType* const type : types_) {
    if (type->name() == name) return type;
  }
  return name.find('|') == std::string_view::npos ? nullptr : find_list(name);
}

std::vector<const ConnectionType*> Registry::lists() const {
  const std::lock_guard lock(lists_->mutex);
  std::vector<const ConnectionType*> all;
  for (const auto& type : lists_->types) all.push_back(type.get());
  return all;
}

std::vector<const ConnectionType*> Registry::types_and_lists() const {
  std::vector<const ConnectionType*> all = lists();
  for (std::size_t i = 0; i < types_.size(); ++i)
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(i), types_[i]);
  return all;
}

void Registry::reload_tls() const {
  std::exception_ptr first;
  for (const std::unique_ptr<Transport>& type : owned_) {
    try {
      type->reload_tls();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

const std::string* Registry::why_unavailable(std::string_view name) const noexcept {
  for (const auto& [unavailable, reason] : unavailable_) {
    if (unavailable == name) return &reason;
  }
  return nullptr;
}

/// Returns the type of a list of schemes such as rdma|tcp, which is created at its first use.
/// Returns null if none of its schemes is available, or if one of them is unknown.
FallbackType* Registry::find_list(std::string_view name) const {
  const std::lock_guard lock(lists_->mutex);
  for (const auto& type : lists_->types) {
    if (type->name() == name) return type.get();
  }
  Endpoint list;
  list.scheme = name;
  std::vector<Candidate> candidates;
  bool any = false;
  for (const std::string& scheme : list.schemes()) {
    Candidate candidate;
    candidate.scheme = scheme;
    candidate.type = find(scheme);
    any = any || candidate.type != nullptr;
    if (candidate.type == nullptr) {
      const std::string* const reason = why_unavailable(scheme);
      if (reason == nullptr) return nullptr;
      candidate.unavailable = scheme + " is not available: " + *reason;
    }
    candidates.push_back(std::move(candidate));
  }
  if (!any) return nullptr;
  lists_->types.push_back(
      std::make_unique<FallbackType>(std::string(name), std::move(candidates), lists_->report));
  return lists_->types.back().get();
}

ConnectionType& Registry::require(std::string_view name) const {
  const std::error_code unavailable = std::make_error_code(std::errc::protocol_not_supported);
  if (ConnectionType* type = find(name)) return *type;
  if (const std::string* const reason = why_unavailable(name))
    throw Error(unavailable, std::string(name).append(" is not available: ") + *reason);
  if (name.find('|') != std::string_view::npos) {
    Endpoint list;
    list.scheme = name;
    std::string all;
    for (const std::string& scheme : list.schemes()) {
      const std::string* const reason = why_unavailable(scheme);
      // Throws an Error that names `scheme`, because no transport of that name is known.
      if (reason == nullptr) (void)require(scheme);
      all.append(all.empty() ? "" : "; ").append(scheme);
      if (reason != nullptr) all.append(" is not available: ").append(*reason);
    }
    throw Error(unavailable, all);
  }
  std::string known;
  for (ConnectionType* const type : types_) {
    if (!known.empty()) known += ", ";
    known += type->name();
  }
  throw Error("there is no transport " + std::string(name) + "; there " +
              (known.empty()        ? "is none"
               : types_.size() == 1 ? "is " + known
                                    : "are " + known));
}

const FallbackType* Registry::list(std::string_view name) const {
  (void)require(name);
  return name.find('|') == std::string_view::npos ? nullptr : find_list(name);
}

ListenerPtr Registry::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                             AcceptHandler accepted) const {
  return require(endpoint.scheme).listen(loop, endpoint, std::move(accepted));
}

ListenerPtr Registry::listen(ae::EventLoop& loop, std::string_view url,
                             AcceptHandler accepted) const {
  return listen(loop, Endpoint::parse(url), std::move(accepted));
}

ConnectionPtr Registry::create(ae::EventLoop& loop, const Endpoint& endpoint) const {
  return require(endpoint.scheme).create(loop);
}

ConnectionPtr Registry::connect(ae::EventLoop& loop, std::string_view url,
                                Connection::Handler done) const {
  const Endpoint endpoint = Endpoint::parse(url);
  const ConnectionType& type = require(endpoint.scheme);
  type.check(endpoint);
  ConnectionPtr connection = type.create(loop);
  connection->connect(endpoint, std::move(done));
  return connection;
}

bool Registry::has_pending_data(ae::EventLoop& loop) const {
  for (ConnectionType* const type : types_) {
    if (type->has_pending_data(loop)) return true;
  }
  return false;
}

std::size_t Registry::process_pending_data(ae::EventLoop& loop) const {
  std::size_t done = 0;
  for (ConnectionType* const type : types_) done += type->process_pending_data(loop);
  return done;
}

}}  // namespace conn
