// SPDX-License-Identifier: BSD-3-Clause
// A TLS handshake, and the first data after it, truncated after each byte in turn, or with each
// byte in turn changed; in both roles and both versions. In memory, so that all cases take only
// seconds.
#if AECONN_TLS

#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

using conn::tls::Errc;
using testing::Context;
using testing::Engine;
using testing::Engines;
using testing::Pipe;
using Step = Engine::Step;
using testing::Contains;

namespace {

enum class Way { kUp, kDown };  // client to server, server to client

/// Without resumption all handshakes of a context have the same messages.
std::shared_ptr<const Context> context_of(const char* version, bool certificates) {
  conn::Options options{{"min-version", version}, {"max-version", version}, {"resumption", "no"}};
  if (certificates) options.set("auth-clients", "yes");
  return Engines::context_of(options);
}

/// Two engines, with control over the bytes of one direction.
struct Line : Engines {
  Line(std::shared_ptr<const Context> shared, Way way)
      : Engines(std::move(shared)),
        watched(way == Way::kUp ? up : down),
        sender(way == Way::kUp ? client : server),
        receiver(way == Way::kUp ? server : client) {}

  /// Runs both engines in turn until both are done, one fails, or there is no progress. `touch` can
  /// change the bytes of the watched direction before the receiver sees them; its argument is the
  /// number of earlier bytes, and by returning false it cuts the direction.
  template <class Touch>
  void handshake(Touch touch) {
    for (int still = 0; still < 2 && !(sent_all && through);) {
      const std::size_t before = came + down.bytes.size() + up.bytes.size();
      sent_all = sender.handshake() == Step::kDone;
      const std::size_t size = watched.bytes.size();
      const bool more = touch(came);
      came += size;
      through = receiver.handshake() == Step::kDone;
      if (through && done_at == 0) done_at = came;
      if (!more || sender.failed() || receiver.failed()) return;
      still = came + down.bytes.size() + up.bytes.size() == before ? still + 1 : 0;
    }
  }

  Pipe& watched;
  Engine& sender;
  Engine& receiver;
  std::size_t came = 0;     // bytes of the watched direction so far
  std::size_t done_at = 0;  // `came` when the receiver was done
  bool sent_all = false, through = false;
};

std::size_t handshake_bytes(const std::shared_ptr<const Context>& context, Way way) {
  Line line(context, way);
  line.handshake([](std::size_t) { return true; });
  REQUIRE(line.sent_all);
  REQUIRE(line.through);
  return line.done_at;
}

/// Handshakes vary in length by a few bytes, since signatures do.
constexpr std::size_t kSignatures = 20;
/// Handshakes with client certificates are so much slower that only some bytes are tried.
std::size_t step_of(bool certificates) { return certificates ? 15 : 1; }

/// As the loop does: repeats while there are bytes on the wire.
void hear_the_end(Engine& engine) {
  for (int i = 0; i < 5 && engine.handshake() == Step::kWantRead; ++i) {
  }
}
ssize_t read_again(Engine& engine, char* buffer, std::size_t size) {
  ssize_t n = -1;
  for (int i = 0; i < 5 && n < 0 && !engine.failed(); ++i) n = engine.read(buffer, size);
  return n;
}

/// Checks that the engine has failed permanently.
void require_dead(Engine& engine) {
  const std::string why = engine.failure().text;
  const std::error_code code = engine.failure().code;
  char buffer[100];
  REQUIRE(engine.handshake() == Step::kFailed);
  REQUIRE(engine.read(buffer, sizeof buffer) == -1);
  REQUIRE(engine.write("x", 1) == -1);
  REQUIRE(engine.failure().text == why);
  REQUIRE(engine.failure().code == code);
  REQUIRE(why.find_first_of("\r\n") == std::string::npos);
}

void flip(Pipe& pipe, std::size_t at) {
  pipe.bytes[at] = static_cast<char>(pipe.bytes[at] ^ (1 << at % 8));
}

}  // namespace

TEST_CASE("tls damage: a handshake may stop, and then end, after any byte of either side",
          "[tls][damage][hostile]") {
  const char* const version = GENERATE("1.2", "1.3");
  const Way way = GENERATE(Way::kUp, Way::kDown);
  const bool certificates = GENERATE(false, true);
  CAPTURE(version, way == Way::kUp, certificates);
  const auto context = context_of(version, certificates);
  const std::size_t all = handshake_bytes(context, way);
  REQUIRE(all > 200);
  for (std::size_t cut = 0;; cut += step_of(certificates)) {
    CAPTURE(cut);
    Line line(context, way);
    bool is_cut = false;
    line.handshake([&](std::size_t before) {
      if (before + line.watched.bytes.size() <= cut) return true;
      line.watched.bytes.resize(cut - before);
      is_cut = true;
      return false;
    });
    if (!is_cut) {
      REQUIRE(cut + kSignatures > all);
      break;
    }
    // No bytes are not an error, and cost only one read of the wire.
    REQUIRE_FALSE(line.receiver.failed());
    testing::PipeWire& wire = way == Way::kUp ? line.server_wire : line.client_wire;
    wire.receives = 0;
    REQUIRE(line.receiver.handshake() == Step::kWantRead);
    REQUIRE(wire.receives <= 1);

    line.watched.ended = true;
    REQUIRE(line.receiver.handshake() == Step::kFailed);
    REQUIRE(line.receiver.failure().code == Errc::kHandshake);
    REQUIRE_THAT(line.receiver.failure().text, Contains("in the middle"));
    require_dead(line.receiver);
  }
}

TEST_CASE("tls damage: a handshake in which any byte changes fails, or changed nothing",
          "[tls][damage][hostile]") {
  const char* const version = GENERATE("1.2", "1.3");
  const Way way = GENERATE(Way::kUp, Way::kDown);
  const bool certificates = GENERATE(false, true);
  CAPTURE(version, way == Way::kUp, certificates);
  const auto context = context_of(version, certificates);
  const std::size_t all = handshake_bytes(context, way);
  std::size_t survived = 0;
  for (std::size_t at = 0;; at += step_of(certificates)) {
    CAPTURE(at);
    Line line(context, way);
    bool flipped = false;
    line.handshake([&](std::size_t before) {
      if (at >= before && at < before + line.watched.bytes.size()) {
        flip(line.watched, at - before);
        flipped = true;
      }
      return true;
    });
    if (!flipped) {
      REQUIRE(at + kSignatures > all);
      break;
    }
    // An engine that believes it is done writes; then both see the end.
    for (Engine* engine : {&line.client, &line.server}) {
      if (engine->handshake() == Step::kDone) (void)engine->write("secret", 6);
    }
    const bool both =
        line.client.handshake() == Step::kDone && line.server.handshake() == Step::kDone;
    line.up.ended = line.down.ended = true;
    for (Engine* engine : {&line.client, &line.server}) {
      char buffer[100];
      hear_the_end(*engine);
      if (engine->handshake() == Step::kDone) {
        const ssize_t n = read_again(*engine, buffer, sizeof buffer);
        if (both) REQUIRE(n == 6);
        REQUIRE((n == 6 || n == -1));
        if (n == 6) {
          REQUIRE(std::string(buffer, 6) == "secret");
          REQUIRE(read_again(*engine, buffer, sizeof buffer) == -1);
        }
      }
      REQUIRE(engine->failed());
      require_dead(*engine);
    }
    survived += both;
  }
  CAPTURE(survived, all);
  REQUIRE(survived <= 8);  // the version in a record's header is not checked
}

TEST_CASE("tls damage: a key that is no point of the curve is no matter of certificates",
          "[tls][damage][hostile]") {
  const auto context = Engines::context_of(
      {{"groups", "P-256"}, {"min-version", "1.2"}, {"max-version", "1.2"}, {"resumption", "no"}});
  const std::size_t all = handshake_bytes(context, Way::kUp);
  std::size_t failures = 0;
  for (std::size_t at = 0; at < all; ++at) {
    CAPTURE(at);
    Line line(context, Way::kUp);
    line.handshake([&](std::size_t before) {
      if (at >= before && at < before + line.watched.bytes.size()) flip(line.watched, at - before);
      return true;
    });
    if (!line.server.failed()) continue;
    ++failures;
    CAPTURE(line.server.failure().text);
    REQUIRE(line.server.failure().code == Errc::kHandshake);
  }
  REQUIRE(failures > 65);  // the point's 65 bytes, and others
}

TEST_CASE("tls damage: a record of which any byte changes, or that ends early, gives out nothing",
          "[tls][damage][hostile]") {
  const char* const version = GENERATE("1.2", "1.3");
  const Way way = GENERATE(Way::kUp, Way::kDown);
  const bool cut = GENERATE(false, true);
  CAPTURE(version, way == Way::kUp, cut);
  const auto context = context_of(version, false);
  const std::string secret(64, 's');
  constexpr std::size_t kHeader = 5, kBeyond = 1000;
  std::size_t all = kBeyond, bad_macs = 0;
  for (std::size_t at = 0; at < all; ++at) {
    CAPTURE(at);
    Line line(context, way);
    line.handshake([](std::size_t) { return true; });
    char buffer[200];
    REQUIRE(line.receiver.read(buffer, sizeof buffer) == -1);  // the handshake's last messages
    REQUIRE(line.sender.write(secret.data(), secret.size()) == 64);
    all = line.watched.bytes.size();
    REQUIRE(all < kBeyond);
    if (cut) {
      line.watched.bytes.resize(at);
    } else {
      flip(line.watched, at);
    }
    line.watched.ended = true;
    REQUIRE(read_again(line.receiver, buffer, sizeof buffer) == -1);
    REQUIRE(line.receiver.failed());
    const bool truncated = line.receiver.failure().code == Errc::kTruncated;
    CAPTURE(line.receiver.failure().text);
    REQUIRE((truncated || line.receiver.failure().code == Errc::kProtocol));
    if (cut) REQUIRE(truncated);
    if (!cut && at >= kHeader) {
      REQUIRE_THAT(line.receiver.failure().text, Contains("bad record mac"));
      ++bad_macs;
    }
    require_dead(line.receiver);
  }
  REQUIRE(bad_macs == (cut ? 0 : all - kHeader));
}

// --- floods of cheap messages --------------------------------------------------------------------

TEST_CASE("tls damage: records of one byte cost each turn no more than its share",
          "[tls][damage][hostile]") {
  const char* const version = GENERATE("1.2", "1.3");
  Engines both(context_of(version, false));
  REQUIRE(both.handshake());
  std::string sent;
  for (int i = 0; i < 20'000; ++i) {
    sent += static_cast<char>('a' + i % 26);
    REQUIRE(both.client.write(&sent.back(), 1) == 1);
  }
  const std::size_t wire = both.up.bytes.size();
  std::string got;
  char buffer[16384];
  std::size_t turns = 0;
  while (got.size() < sent.size()) {
    const std::size_t before = both.up.bytes.size();
    const ssize_t n = both.server.read(buffer, sizeof buffer);
    REQUIRE(n > 0);
    REQUIRE(n <= 256);  // limit of records decrypted per call
    REQUIRE(before - both.up.bytes.size() <= 6 * Engine::kRecord);
    got.append(buffer, static_cast<std::size_t>(n));
    // If the wire has no more bytes, the engine must report the buffered ones.
    REQUIRE((got.size() == sent.size() || !both.up.bytes.empty() || both.server.readable()));
    ++turns;
  }
  REQUIRE(got == sent);
  REQUIRE(turns >= sent.size() / 256);
  REQUIRE(wire > 20 * sent.size());
}

TEST_CASE("tls damage: records without any content end the handshake", "[tls][damage][hostile]") {
  // TLS 1.3 ignores ChangeCipherSpec, which is plain text and may come at any time until the end of
  // the handshake.
  Engines both(context_of("1.3", false));
  REQUIRE(both.client.handshake() == Step::kWantRead);
  REQUIRE(both.server.handshake() == Step::kWantRead);
  constexpr std::string_view kEmpty("\x14\x03\x03\x00\x01\x01", 6);
  for (int i = 0; i < 1000; ++i)
    both.up.bytes.insert(both.up.bytes.end(), kEmpty.begin(), kEmpty.end());
  REQUIRE(both.server.handshake() == Step::kFailed);
  REQUIRE(both.server.failure().code == Errc::kHandshake);
  require_dead(both.server);
}

TEST_CASE("tls damage: alerts that are only warnings end a connection when they do not stop",
          "[tls][damage][hostile]") {
  Engines both(context_of("1.2", false));
  constexpr std::string_view kWarning("\x15\x03\x03\x00\x02\x01\x5a", 7);  // user_canceled
  for (int i = 0; i < 1000; ++i) {
    both.up.bytes.insert(both.up.bytes.end(), kWarning.begin(), kWarning.end());
  }
  REQUIRE(both.server.handshake() == Step::kFailed);
  require_dead(both.server);
}

#endif  // AECONN_TLS
