// SPDX-License-Identifier: BSD-3-Clause
// The C interface of several loops: ae::LoopGroup, ae::LoopList and conn::ListenerGroup.

#include <algorithm>
#include <thread>

#include "c/internal.h"
#include "conn/metrics.h"

using namespace aeconn_c;

namespace {

constexpr std::size_t kMostLoops = 4096;
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

void check_number(std::size_t loops) {
  if (loops > kMostLoops)
    throw conn::Error("a group of " + std::to_string(loops) +
                      " loops: " + std::to_string(kMostLoops) + " is the limit");
}

aeconn_listener* listen_on_all(aeconn_group* group, const char* url, conn::Spread spread,
                               aeconn_group_accept_fn accepted, void* context) {
  const auto make = [&](ae::EventLoop&, std::size_t index) -> conn::AcceptHandler {
    return [accepted, context, loop = group->loops[index]](ConnectionPtr connection) {
      accepted(context, loop, handle(connection.release()));
    };
  };
  conn::ListenerGroupPtr listener =
      conn::listen(registry(), group->all(), url, make, std::move(spread));
  const conn::ListenerGroup* const of_group = listener.get();
  aeconn_listener* const result = made(std::move(listener));
  result->of_group = of_group;
  return result;
}

}  // namespace

// A loop that is about to end still runs functions of the program, although its poster is closed.
// The threads of a list may have ended, and their ids may be those of others now.
bool aeconn_c::on_its_thread(const aeconn_group& group) noexcept {
  try {
    for (std::size_t i = 0; i < group.loops.size(); ++i)
      if (group.all().thread(i) == std::this_thread::get_id() &&
          (group.threads ? !group.joined : group.all().poster(i).open()))
        return true;
  } catch (const ae::LoopError&) {
  }
  return false;
}

extern "C" {

// --- several loops -------------------------------------------------------------------------------

aeconn_group* aeconn_group_new(size_t loops, const char* name, int pin) {
  return guarded([&] {
    check_number(loops);
    auto group = std::make_unique<aeconn_group>();
    ae::LoopGroup::Config config;
    config.loops = loops;
    if (name != nullptr) config.name = name;
    config.pin = pin != 0;
    config.make = [](std::size_t) {
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);  // aeconn_group_stop() ends it
      return std::make_unique<ae::EpollLoop>();
    };
    group->threads = std::make_unique<ae::LoopGroup>(std::move(config));
    for (std::size_t i = 0; i < group->threads->size(); ++i) {
      auto& loop = static_cast<ae::EpollLoop&>(*group->threads->loop(i));
      group->made.push_back(std::make_unique<aeconn_loop>(loop));
      group->loops.push_back(group->made.back().get());
    }
    return group.release();
  });
}

aeconn_group* aeconn_group_of(aeconn_loop* const* loops, size_t count) {
  if (loops == nullptr || std::find(loops, loops + count, nullptr) != loops + count)
    return no_handle<aeconn_group*>();
  return guarded([&] {
    check_number(count);
    auto group = std::make_unique<aeconn_group>();
    group->loops.assign(loops, loops + count);
    std::vector<ae::EventLoop*> all;
    for (aeconn_loop* each : group->loops) all.push_back(&each->loop);
    group->list = std::make_unique<ae::LoopList>(all);
    return group.release();
  });
}

void aeconn_group_free(aeconn_group* group) {
  const NoCancel held;
  if (group == nullptr) return;
  if (group->threads) {
    if (on_its_thread(*group)) return;
    try {
      // Waits for the threads before `threads` becomes null: their handlers may use the group
      // meanwhile.
      group->threads->stop();
      group->threads->run();
    } catch (...) {
      // A handler in C++ has thrown; or this is a child of fork(), where the threads do not exist.
    }
  }
  delete group;
}

size_t aeconn_group_size(const aeconn_group* group) {
  return group == nullptr ? 0 : group->loops.size();
}

size_t aeconn_group_index(const aeconn_group* group, const aeconn_loop* loop) {
  if (group == nullptr || loop == nullptr) return kNone;
  const auto found = std::find(group->loops.begin(), group->loops.end(), loop);
  return found == group->loops.end() ? kNone
                                     : static_cast<std::size_t>(found - group->loops.begin());
}

int aeconn_group_post(aeconn_group* group, size_t index, aeconn_loop_fn fn, void* context) {
  if (group == nullptr || fn == nullptr) return no_handle();
  if (index >= group->loops.size()) return failed(EINVAL, "the group has no such loop");
  return guarded([&] {
    group->all().poster(index).post(
        [fn, context, loop = group->loops[index]] { fn(context, loop); });
    return 0;
  });
}

void aeconn_group_stop(aeconn_group* group) {
  if (group == nullptr) return;
  guarded([&] {
    if (group->threads) return group->threads->stop(), 0;
    for (std::size_t i = 0; i < group->loops.size(); ++i)
      group->list->poster(i).post([loop = group->list->loop(i)] { loop->stop(); });
    return 0;
  });
}

int aeconn_group_wait(aeconn_group* group) {
  if (group == nullptr) return no_handle();
  if (!group->threads)
    return failed(EINVAL, "the group's loops run on the program's threads: join these instead");
  return guarded([&] {
    const bool joins = !on_its_thread(*group);
    try {
      group->threads->run();
    } catch (...) {  // a handler in C++ has thrown, or this is a thread of the group
      if (joins) group->joined = true;
      throw;
    }
    group->joined = true;
    return 0;
  });
}

aeconn_listener* aeconn_group_listen(aeconn_group* group, const char* url, aeconn_spread spread,
                                     aeconn_group_accept_fn accepted, void* context) {
  if (group == nullptr || url == nullptr || accepted == nullptr)
    return no_handle<aeconn_listener*>();
  return guarded([&] {
    conn::Spread rule = conn::Spread::fewest();
    if (spread == AECONN_ROUND_ROBIN) rule = conn::Spread::round_robin();
    if (spread == AECONN_KERNEL) rule = conn::Spread::kernel();
    return listen_on_all(group, url, std::move(rule), accepted, context);
  });
}

aeconn_listener* aeconn_group_listen_by(aeconn_group* group, const char* url,
                                        aeconn_choose_fn choose, aeconn_group_accept_fn accepted,
                                        void* context) {
  if (group == nullptr || url == nullptr || choose == nullptr || accepted == nullptr)
    return no_handle<aeconn_listener*>();
  return guarded([&] {
    const auto rule = conn::Spread::by([choose, context](const conn::Arriving& arriving) {
      return choose(context, std::string(arriving.peer).c_str(), arriving.connections.data(),
                    arriving.connections.size());
    });
    return listen_on_all(group, url, rule, accepted, context);
  });
}

int aeconn_listener_share(const aeconn_listener* listener, size_t index, uint64_t* open,
                          uint64_t* assigned) {
  if (listener == nullptr) return no_handle();
  return guarded([&] {
    if (listener->of_group == nullptr) return failed(EINVAL, "the listener is not one of a group");
    const std::vector<conn::ListenerGroup::Share> shares = listener->of_group->shares();
    if (index >= shares.size()) return failed(EINVAL, "the group has no such loop");
    if (open != nullptr) *open = shares[index].open;
    if (assigned != nullptr) *assigned = shares[index].assigned;
    return 0;
  });
}

int aeconn_group_statistics(aeconn_group* group, size_t index, const char* scheme,
                            aeconn_fact_fn fn, void* context) {
  if (group == nullptr || fn == nullptr) return no_handle();
  if (index >= group->loops.size()) return failed(EINVAL, "the group has no such loop");
  return guarded([&] {
    conn::Statistics all;
    group->all().ask(index, [&, loop = group->loops[index]](ae::EventLoop&) {
      all = statistics_of(loop->loop, scheme);
    });
    return tell(all, fn, context), 0;
  });
}

int aeconn_group_metrics(aeconn_group* group, aeconn_text_fn fn, void* context) {
  if (group == nullptr || fn == nullptr) return no_handle();
  return guarded([&] {
    const std::string text = conn::metrics(registry(), group->all());
    fn(context, text.c_str(), text.size());
    return 0;
  });
}
}  // extern "C"
