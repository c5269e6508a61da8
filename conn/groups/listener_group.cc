// SPDX-License-Identifier: BSD-3-Clause
#include "conn/listener_group.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "conn/core/connection_set.h"
#include "conn/core/transport.h"
#include "conn/error.h"
#include "conn/fallback_type.h"
#include "conn/groups/group_core.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

/// Owns the core of a listener group, and closes it in its destructor.
struct OpenGroup {
  explicit OpenGroup(std::shared_ptr<GroupCore> its_core) : core(std::move(its_core)) {}
  OpenGroup(const OpenGroup&) = delete;
  OpenGroup& operator=(const OpenGroup&) = delete;
  ~OpenGroup() { core->close(); }
  const std::shared_ptr<GroupCore> core;
};

/// Creates and opens the core of a listener group. The core is closed when the last copy of the
/// returned pointer is destroyed, or when opening throws.
std::shared_ptr<GroupCore> make_core(const ConnectionType& type, ae::Loops& loops,
                                     const Endpoint& endpoint, const MakeAcceptHandler& make,
                                     const Spread& spread, const GroupCore::OpenPort& open_port) {
  auto owner = std::make_shared<OpenGroup>(std::make_shared<GroupCore>(type, loops, spread));
  GroupCore* const core = owner->core.get();
  core->open(endpoint, make, open_port);
  return {std::move(owner), core};
}

}  // namespace

ListenerGroup::ListenerGroup(std::shared_ptr<GroupCore> core)
    : type_(core->type()), cores_{std::move(core)} {}
ListenerGroup::ListenerGroup(const ConnectionType& type,
                             std::vector<std::shared_ptr<GroupCore>> cores,
                             std::vector<Skipped> not_served)
    : type_(type), cores_(std::move(cores)), not_served_(std::move(not_served)) {}
ListenerGroup::~ListenerGroup() = default;

const ConnectionType& ListenerGroup::type() const noexcept { return type_; }
std::vector<Endpoint> ListenerGroup::endpoints() const {
  std::vector<Endpoint> all;
  for (const auto& core : cores_) {
    for (Endpoint& endpoint : core->endpoints()) all.push_back(std::move(endpoint));
  }
  return all;
}
void ListenerGroup::pause() {
  for (const auto& core : cores_) core->set_paused(true);
}
void ListenerGroup::resume() {
  for (const auto& core : cores_) core->set_paused(false);
}
void ListenerGroup::on_refused(const RefusedHandler& handler) {
  for (const auto& core : cores_) core->on_refused(handler);
}
std::vector<ListenerGroup::Share> ListenerGroup::shares() const {
  std::vector<Share> all = cores_.front()->shares();
  for (std::size_t i = 1; i < cores_.size(); ++i) {
    const std::vector<Share> more = cores_[i]->shares();
    for (std::size_t loop = 0; loop < all.size(); ++loop) {
      all[loop].open += more[loop].open;
      all[loop].assigned += more[loop].assigned;
    }
  }
  return all;
}

namespace {

std::shared_ptr<GroupCore> open_core(const ConnectionType& type, ae::Loops& loops,
                                     const Endpoint& endpoint, const MakeAcceptHandler& make,
                                     const Spread& spread) {
  type.check(endpoint);
  const bool by_kernel = spread.how() == Spread::By::kKernel;
  if (by_kernel && !type.capabilities().reuseport)
    throw Error(endpoint.to_string() + ": the kernel does not spread connections of " +
                std::string(type.name()) + "; let the listener do it");
  Endpoint at = endpoint;
  if (by_kernel) at.options.set("reuseport", "yes");
  std::uint16_t port = at.port;  // port that the first loop listens on; the other loops use it too
  return make_core(type, loops, at, make, spread,
                   [&](const GroupPart& part, PendingHandler arrived) {
                     Endpoint here = at;
                     here.port = part.index == 0 ? at.port : port;
                     PortListenerPtr port_listener =
                         Transport::of(type).open_port(*part.loop, here, std::move(arrived));
                     if (part.index == 0) port = port_listener->endpoints().front().port;
                     return port_listener;
                   });
}

/// The accept handlers of a list of schemes, which has a GroupCore for each scheme: each loop's
/// handler is created only once, and shared by the cores. The handler is destroyed with the last of
/// the cores, on the loop's thread.
class SharedHandlers {
 public:
  SharedHandlers(ae::Loops& loops, const MakeAcceptHandler& make) : make_(make) {
    for (std::size_t i = 0; i < loops.size(); ++i)
      slots_.push_back(std::make_unique<Slot>(*this, loops.poster(i)));
  }
  /// Blocks until each loop has released its handler, or has ended.
  ~SharedHandlers() {
    for (const auto& slot : slots_) slot->let_go_soon();
    std::unique_lock lock(mutex_);
    gone_.wait(lock, [this] {
      return std::none_of(slots_.begin(), slots_.end(), [](const auto& s) { return s->there; });
    });
  }
  SharedHandlers(const SharedHandlers&) = delete;
  SharedHandlers& operator=(const SharedHandlers&) = delete;
  AcceptHandler operator()(ae::EventLoop& loop, std::size_t index) {
    Slot& slot = *slots_[index];
    if (!slot.handler) {
      ConnectionSet& set = ConnectionSet::of(loop);
      slot.handler = std::make_shared<const AcceptHandler>(make_(loop, index));
      set.add(slot);
      const std::lock_guard lock(mutex_);
      slot.there = true;
      slot.thread = std::this_thread::get_id();
    }
    return [handler = slot.handler](ConnectionPtr arrival) { (*handler)(std::move(arrival)); };
  }

 private:
  struct Slot final : LoopEndWatcher {
    Slot(SharedHandlers& of_whom, ae::Poster its_poster)
        : all(of_whom), poster(std::move(its_poster)) {}
    void on_loop_end() noexcept override { let_go(); }
    void let_go() noexcept {
      if (!handler) return;
      stop_watching();
      handler.reset();
      const std::lock_guard lock(all.mutex_);
      there = false;
      all.gone_.notify_all();
    }
    /// Releases the handler on the loop's thread. If the post fails, the loop has ended, and has
    /// released its handler or is about to.
    void let_go_soon() noexcept {
      {
        const std::lock_guard lock(all.mutex_);
        if (!there) return;
      }
      if (thread == std::this_thread::get_id()) return let_go();
      (void)post_surely([this] { return poster.post([this] { let_go(); }); });
    }
    SharedHandlers& all;
    const ae::Poster poster;
    // The loop's accept handler; used only on the loop's thread.
    std::shared_ptr<const AcceptHandler> handler;
    bool there = false;      // true if `handler` exists; guarded by SharedHandlers::mutex_
    std::thread::id thread;  // the loop's thread; does not change while `there` is true
  };
  const MakeAcceptHandler& make_;
  std::mutex mutex_;
  std::condition_variable gone_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

ListenerGroupPtr listen_on_list(const FallbackType& list, ae::Loops& loops,
                                const Endpoint& endpoint, const MakeAcceptHandler& make,
                                const Spread& spread) {
  list.check(endpoint);
  SharedHandlers handlers(loops, make);
  std::vector<std::shared_ptr<GroupCore>> cores;
  std::vector<Skipped> missing = list.listen_on_each(
      endpoint,
      [&](const Candidate& candidate, const Endpoint& at) {
        cores.push_back(open_core(
            *candidate.type, loops, at,
            [&](ae::EventLoop& loop, std::size_t index) { return handlers(loop, index); }, spread));
        return cores.back()->endpoints();
      },
      [&] { cores.clear(); });
  return std::make_unique<ListenerGroup>(list, std::move(cores), std::move(missing));
}

}  // namespace

ListenerGroupPtr listen(const Registry& registry, ae::Loops& loops, const Endpoint& endpoint,
                        const MakeAcceptHandler& make, Spread spread) {
  const ConnectionType& type = registry.require(endpoint.scheme);
  if (const FallbackType* const list = registry.list(endpoint.scheme))
    return listen_on_list(*list, loops, endpoint, make, spread);
  return std::make_unique<ListenerGroup>(open_core(type, loops, endpoint, make, spread));
}

ListenerGroupPtr listen(const Registry& registry, ae::Loops& loops, std::string_view url,
                        const MakeAcceptHandler& make, Spread spread) {
  return listen(registry, loops, Endpoint::parse(url), make, std::move(spread));
}

ListenerGroupPtr adopt_listener(const ConnectionType& type, ae::Loops& loops, int fd,
                                const MakeAcceptHandler& make, Spread spread,
                                const Options& options) {
  if (spread.how() == Spread::By::kKernel)
    throw Error("descriptor " + std::to_string(fd) +
                ": the kernel spreads over sockets that were made for it, not over one");
  Endpoint endpoint;
  endpoint.scheme = type.name();
  endpoint.options = options;
  auto listener = std::make_unique<ListenerGroup>(make_core(
      type, loops, endpoint, make, spread, [&](const GroupPart& part, PendingHandler arrived) {
        return Transport::of(type).adopt_port(*part.loop, fd, std::move(arrived), options);
      }));
  ::close(fd);  // the port listener has a duplicate of `fd`; after a failure above, `fd` stays open
  return listener;
}

std::vector<Statistics> statistics(const ConnectionType& type, ae::Loops& loops) {
  std::vector<Statistics> all(loops.size());
  loops.ask_each(
      [&](ae::EventLoop& loop, std::size_t index) { all[index] = type.statistics(loop); });
  return all;
}

}}  // namespace conn
