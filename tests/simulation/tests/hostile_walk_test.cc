// SPDX-License-Identifier: BSD-3-Clause
// Random walks of peers that are not aeconn, and do at random what the protocol allows and what it
// does not, towards servers and clients whose programs do what they may at random moments.
//
// AECONN_HOSTILE_WALKS=N walks N times in each role instead of a few times, from seed
// AECONN_HOSTILE_SEED on.

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conn/rdma/protocol/wire.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using conn::rdma::ControlMessage;
using conn::rdma::Hello;
using conn::rdma::Opcode;

namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct HostileWalk {
  HostileWalk(std::uint64_t seed, bool as_server)
      : random(seed), peer_is_server(as_server), room(config(seed), options()), net(*theirs) {}
  ~HostileWalk() {
    peers.clear();
    net.accepted.clear();
    ours.clear();
    room.log.clients.clear();
    pass(10ms);
  }
  HostileWalk(const HostileWalk&) = delete;
  HostileWalk& operator=(const HostileWalk&) = delete;

  std::uint64_t below(std::uint64_t most) { return random() % most; }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  /// Whether the peer breaks a rule that ends its connection.
  bool breaks() { return one_in(rudeness); }

  Config config(std::uint64_t seed) {
    Config config;
    config.seed = seed;
    config.strangers = true;
    config.weather.most_cm_delay = one_in(2) ? 2ms : 100us;
    config.weather.most_delay = one_in(3) ? 2ms : 20us;
    return config;
  }
  std::string options() {
    std::string all = one_in(2) ? "?window=4k&max-window=64k" : "?window=64k";
    if (one_in(2)) all += "&keepalive=100ms";
    if (one_in(2)) all += one_in(3) ? "&linger=0ms" : "&linger=50ms";
    if (one_in(2)) all += "&accept-timeout=200ms";
    if (one_in(3)) all += "&send-buffer=4k";
    if (one_in(3)) all += one_in(2) ? "&isolation=none" : "&isolation=connection";
    if (one_in(3)) all += "&in-place=yes";
    if (one_in(4)) all += "&resume=yes&resume-time=200ms";
    if (one_in(4)) all += "&inline=0";
    if (one_in(4) && !peer_is_server) all += "&prepared=3";
    if (one_in(4)) all += "&send-queue=8";
    if (one_in(4)) all += "&memory-limit=" + std::to_string(100 + below(2000)) + "k";
    return ours_have = all;
  }

  std::string hello() {
    if (one_in(3)) return {};
    Hello hello{.flags = static_cast<std::uint32_t>(one_in(2) ? 0xffffffff : random()),
                .keepalive_ms = one_in(2) ? 0u : static_cast<std::uint32_t>(below(1000)),
                .receives = one_in(2) ? static_cast<std::uint32_t>(below(40)) : 1024,
                .mtu = static_cast<std::uint8_t>(below(7)),
                .resume_ms = static_cast<std::uint32_t>(below(1000))};
    hello.grant.session = below(3);
    hello.grant.key[0] = std::byte{1};
    const auto bytes = encode(
        hello, peer_is_server ? conn::rdma::HelloKind::kAnswer : conn::rdma::HelloKind::kRequest);
    std::string text = text_of({bytes.data(), bytes.size()});
    if (one_in(8)) text.resize(below(text.size() + 1));
    if (one_in(8) && !text.empty()) text[below(text.size())] ^= static_cast<char>(random());
    return text;
  }
  testing::RawOptions raw_options() {
    testing::RawOptions options;
    options.receives = one_in(3) ? static_cast<unsigned>(1 + below(20)) : 1024;
    options.reposts = !one_in(6);
    options.announce = !one_in(6);
    options.answers_features = !one_in(4);
    options.window = static_cast<std::uint32_t>(one_in(2) ? 1 + below(5000) : 65536);
    options.private_data = hello();
    if (!peer_is_server) options.source = "10.77.0.2";
    return options;
  }

  std::string control() {
    static constexpr std::array<std::uint16_t, 9> kSelects{0,
                                                           1,
                                                           conn::rdma::kWindowMark,
                                                           conn::rdma::kWindowAhead,
                                                           0x8001,
                                                           0x8002,
                                                           conn::rdma::kFinished,
                                                           conn::rdma::kShutDown,
                                                           conn::rdma::kAborted};
    ControlMessage message;
    message.opcode = static_cast<Opcode>(below(3));
    // The last ones end the stream, mostly at a wrong byte.
    message.select = kSelects[below(breaks() ? kSelects.size() : kSelects.size() - 3)];
    message.features = one_in(2) ? 0 : random();
    return text_of(encode(message));
  }
  std::string offer(testing::RawPeer& peer) {
    const auto window = peer.own_window();
    ControlMessage message;
    message.opcode = Opcode::kRegisterXferMemory;
    message.select = std::array<std::uint16_t, 3>{0, conn::rdma::kWindowMark,
                                                  conn::rdma::kWindowAhead}[below(3)];
    const std::uint32_t from = static_cast<std::uint32_t>(below(window.length));
    message.address = window.address + from;
    message.length = window.length - from;
    if (one_in(3)) message.length = std::min<std::uint32_t>(message.length, 1);
    message.key = window.key;
    if (breaks()) message.key ^= 0x500;
    if (breaks()) message.address = random();
    if (breaks()) message.length = static_cast<std::uint32_t>(random());
    return text_of(encode(message));
  }

  void act(testing::RawPeer& peer) {
    if (!peer.established || peer.over() || !peer.can_post(8)) return;
    const bool has = !peer.offers.empty();
    switch (below(24)) {
      case 0:
        return peer.send(control());
      case 1:
        return peer.send(breaks() ? std::string(below(60), 'x') : control());
      case 2:
      case 3:
      case 4:
        return peer.send(offer(peer));
      case 5:
      case 6:
      case 7:
      case 8:
      case 9:
      case 10: {
        const std::string bytes(1 + below(one_in(3) ? 100000 : 300), 's');
        return peer.stream(bytes);
      }
      case 11:
        return breaks() ? peer.immediate(static_cast<std::uint32_t>(random()))
                        : peer.immediate(one_in(2) ? 0 : 0x80000000);
      case 12: {  // bytes that it did not write
        if (!has || peer.offer_used == peer.offer().length) return;
        const std::uint32_t left = peer.offer().length - peer.offer_used;
        const auto claims = static_cast<std::uint32_t>(1 + below(std::min(left, 5000u)));
        peer.offer_used += claims;
        return peer.immediate(claims);
      }
      case 13:
        return one_in(2) ? peer.stop_polling() : peer.poll_again();
      case 14:
        return peer.poll_again();
      case 15:
        return peer.announce_new(static_cast<std::uint32_t>(1 + below(100000)));
      case 16:
        return peer.announce();
      case 17:
        return peer.post_receives(static_cast<unsigned>(below(30)));
      case 18:
        return peer.answer_features();
      case 19:
        return peer.send(testing::raw_keepalive());
      case 20:
        return breaks() && has
                   ? peer.write("wild", peer.offer().address + below(100000), peer.offer().key)
                   : void();
      case 21:
        return breaks() ? peer.disconnect() : void();
      case 22:
        return breaks() ? peer.drop_queue_pair() : void();
      case 23:
        return breaks() && has ? peer.read(8, peer.offer().address, peer.offer().key) : void();
    }
  }

  // What happens to our device.
  void disturb() {
    Device& device = peer_is_server ? *room.far : *room.near;
    switch (below(6)) {
      case 0: {
        static constexpr std::array<ibv_event_type, 5> kOfQueuePairs{
            IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
            IBV_EVENT_PATH_MIG_ERR};
        ibv_async_event event{};
        event.event_type = kOfQueuePairs[below(kOfQueuePairs.size())];
        for (const auto& [number, qp] : room.world.queue_pairs) {
          if (&qp->device_of() != &device || !one_in(3)) continue;
          event.element.qp = qp;
          static_cast<Handle*>(qp->context)->raise(event);
        }
        return;
      }
      case 1: {
        static constexpr std::array<ibv_event_type, 6> kOfDevice{
            IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,
            IBV_EVENT_LID_CHANGE,   IBV_EVENT_GID_CHANGE,  IBV_EVENT_SRQ_LIMIT_REACHED};
        return room.world.raise(device, kOfDevice[below(kOfDevice.size())]);
      }
      case 2:
        return room.world.set_link(device, false);
      case 3:
        return room.world.set_link(device, true);
      case 4:
        room.world.advance(room.world.now() + Nanoseconds(below(500000000)));
        return;
      case 5:
        for (const auto& [number, qp] : room.world.queue_pairs)
          if (one_in(10)) qp->stuck = !qp->stuck;
        return;
    }
  }

  // --- our ends ---
  /// Handlers must not throw: calls that have no memory may.
  template <class Do>
  static void without_memory(const Do& what) {
    try {
      what();
    } catch (const std::bad_alloc&) {
    }
  }
  void serve(conn::ConnectionPtr next) {
    if (one_in(12)) return;  // closed in the accept handler
    conn::Connection& here = *next;
    ours.push_back(std::move(next));
    set_handlers(here);
    if (one_in(3)) use(here);
  }
  void set_handlers(conn::Connection& here) {
    here.set_read_handler([this](conn::Connection& it) { without_memory([&] { on_read(it); }); });
    if (!one_in(2)) return;
    here.set_write_handler([this](conn::Connection& it) { without_memory([&] { on_write(it); }); });
  }
  void drop(conn::Connection& here) {
    std::erase_if(ours, [&](const auto& each) { return each.get() == &here; });
  }
  void on_read(conn::Connection& here) {
    std::array<char, 3000> bytes;
    if (one_in(200)) return drop(here);
    if (one_in(3)) {
      const conn::View view = here.peek(1 + below(5000));
      if (view.size != 0) {
        if (one_in(2)) here.consume(below(view.size + 10));
        return;
      }
    }
    const ssize_t n = here.read(bytes.data(), 1 + below(bytes.size()));
    if (n > 0) return (void)here.write(bytes.data(), static_cast<std::size_t>(n));
    if (n < 0 && errno == EAGAIN) return;
    if (one_in(2)) return drop(here);
    here.set_read_handler(nullptr);
  }
  void on_write(conn::Connection& here) {
    if (one_in(200)) return drop(here);
    use(here);
    if (one_in(4)) here.set_write_handler(nullptr);
  }
  void use(conn::Connection& here) {
    static const std::string kMuch(300000, 'u');
    switch (below(12)) {
      case 0:
        return (void)here.write(kMuch.data(), 1 + below(kMuch.size()));
      case 1:
        return (void)here.write(kMuch.data(), 1 + below(20));
      case 2:
        return (void)here.reserve(1 + below(60000));
      case 3:
        return here.commit(below(60000));
      case 4:
        return one_in(5) ? (void)here.shutdown() : void();
      case 5: {
        std::vector<iovec> all(1 + below(60));
        for (iovec& each : all) each = {const_cast<char*>(kMuch.data()), below(4000)};
        return (void)here.writev(all.data(), static_cast<int>(all.size()));
      }
      case 6:
        return (void)here.send(
            {std::as_bytes(std::span(kMuch).first(1 + below(100000))), nullptr, nullptr, nullptr});
      case 7:
        return set_handlers(here);
      case 8:
        return (void)here.info();
      default:
        return;
    }
  }

  // One iteration of our loop, in which allocations may fail, and one of the peers' loop.
  void step() {
    if (short_of_memory && one_in(8)) fail_allocation(Allocator::kNew, 1 + below(40), 1 + below(3));
    (void)room.loop.process_events(ae::kAllEvents | ae::kDontWait);
    fail_allocation(Allocator::kNew, 0);
    (void)theirs->process_events(ae::kAllEvents | ae::kDontWait);
  }
  void pass(Nanoseconds span) {
    const Nanoseconds end = room.world.now() + span;
    while (room.world.now() < end) {
      step();
      (void)room.world.advance(std::min(end, room.world.now() + 200us));
    }
  }

  void walk() {
    ours.reserve(1000);
    conn::ListenerPtr listener;
    conn::Endpoint to;
    if (peer_is_server) {
      to = net.listen(raw_options());
      to.options = conn::Options::parse(ours_have.substr(1) + "&source=10.77.0.2");
    } else {
      listener = room.type.listen(
          room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0" + ours_have),
          [this](conn::ConnectionPtr next) { without_memory([&] { serve(std::move(next)); }); });
      to = listener->endpoints().front();
    }
    for (int i = 0; i < 1000; ++i) {
      if (peers.size() < 6 && net.accepted.size() < 6 && one_in(15)) {
        if (peer_is_server) {
          conn::ConnectionPtr client = room.type.create(room.loop);
          conn::Connection& here = *client;
          ours.push_back(std::move(client));
          here.connect(to, [this](conn::Connection& it) {
            if (it.state() != conn::State::kConnected || one_in(10)) return drop(it);
            without_memory([&] { set_handlers(it); });
          });
        } else {
          peers.push_back(net.connect(to, raw_options()));
        }
      }
      auto& all = peer_is_server ? net.accepted : peers;
      if (one_in(10)) std::erase_if(all, [](const auto& each) { return each->over(); });
      for (std::uint64_t left = below(4); left != 0 && !all.empty(); --left)
        act(*all[below(all.size())]);
      if (!all.empty() && one_in(300))
        all.erase(all.begin() + static_cast<long>(below(all.size())));
      if (trouble && one_in(60)) disturb();
      if (!ours.empty() && one_in(3)) use(*ours[below(ours.size())]);
      if (!ours.empty() && one_in(300))
        ours.erase(ours.begin() + static_cast<long>(below(ours.size())));
      if (one_in(6))
        pass(Nanoseconds(below(one_in(10) ? 400000000 : 3000000)));
      else
        step();
    }
    // Nothing spins once the peers do nothing more.
    room.world.set_link(*room.near, true);
    room.world.set_link(*room.far, true);
    for (const auto& [number, qp] : room.world.queue_pairs) qp->stuck = false;
    pass(100ms);
    const std::uint64_t waits = room.world.waits, messages = room.world.messages;
    room.run_for(1s);
    CHECK(room.world.waits - waits < 1000 + 4 * (room.world.messages - messages));
    CHECK(room.world.violations().empty());
    listener.reset();
  }

  std::mt19937_64 random;
  const bool peer_is_server;
  const std::uint64_t rudeness = std::array{5, 50, 500}[random() % 3];
  const bool trouble = random() % 3 == 0;
  std::string ours_have;
  const bool short_of_memory = random() % 3 == 0;
  Room room;
  std::unique_ptr<ae::EventLoop> theirs = testing::make_loop();
  testing::RawNet net;
  std::vector<std::unique_ptr<testing::RawPeer>> peers;
  std::vector<conn::ConnectionPtr> ours;
};

std::uint64_t number_in(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_CASE("simulation: hostile peers at random leave no object behind", "[simulation][hostile]") {
  const std::uint64_t first = number_in("AECONN_HOSTILE_SEED", 1);
  const std::uint64_t count = number_in("AECONN_HOSTILE_WALKS", 10);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    for (const bool as_server : {false, true}) {
      CAPTURE(seed, as_server);
      HostileWalk walk(seed, as_server);
      walk.walk();
    }
  }
}
