#include "conn/listener_group.h"

#include <utility>

#include "conn/error.h"
#include "conn/group_core.h"

namespace conn {
namespace {

ListenerGroupPtr make_group(const ConnectionType& type, ae::Loops& loops, const Endpoint& endpoint,
                            const MakeAcceptHandler& make, Spread spread,
                            const GroupCore::OpenGate& open_gate) {
  const auto core = std::make_shared<GroupCore>(type, loops, std::move(spread));
  auto group = std::make_unique<ListenerGroup>(core);  // closes it, whatever happens
  core->open(endpoint, make, open_gate);
  return group;
}

}  // namespace

ListenerGroup::ListenerGroup(std::shared_ptr<GroupCore> core) : core_(std::move(core)) {}
ListenerGroup::~ListenerGroup() { core_->close(); }

const ConnectionType& ListenerGroup::type() const noexcept { return core_->type(); }
std::vector<Endpoint> ListenerGroup::endpoints() const { return core_->endpoints(); }
void ListenerGroup::pause() { core_->set_paused(true); }
void ListenerGroup::resume() { core_->set_paused(false); }
void ListenerGroup::on_refused(const RefusedHandler& handler) { core_->on_refused(handler); }
std::vector<ListenerGroup::Share> ListenerGroup::shares() const { return core_->shares(); }

ListenerGroupPtr listen(const Registry& registry, ae::Loops& loops, const Endpoint& endpoint,
                        const MakeAcceptHandler& make, Spread spread) {
  const ConnectionType& type = registry.require(endpoint.scheme);
  type.check(endpoint);
  const bool by_kernel = spread.how() == Spread::By::kKernel;
  if (by_kernel && !type.capabilities().reuseport)
    throw Error(endpoint.to_string() + ": the kernel does not spread connections of " +
                std::string(type.name()) + "; let the listener do it");
  Endpoint at = endpoint;
  if (by_kernel) at.options.set("reuseport", "yes");
  std::uint16_t port = at.port;  // the first loop's, for the others
  return make_group(type, loops, at, make, std::move(spread),
                    [&](const GroupPart& part, ArrivalHandler arrived) {
                      Endpoint here = at;
                      here.port = part.index == 0 ? at.port : port;
                      GatePtr gate = type.open_gate(*part.loop, here, std::move(arrived));
                      if (part.index == 0) port = gate->endpoints().front().port;
                      return gate;
                    });
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
  return make_group(type, loops, endpoint, make, std::move(spread),
                    [&](const GroupPart& part, ArrivalHandler arrived) {
                      return type.adopt_gate(*part.loop, fd, std::move(arrived), options);
                    });
}

std::vector<Statistics> statistics(const ConnectionType& type, ae::Loops& loops) {
  std::vector<Statistics> all(loops.size());
  loops.on_each(
      [&](ae::EventLoop& loop, std::size_t index) { all[index] = type.statistics(loop); });
  return all;
}

}  // namespace conn
