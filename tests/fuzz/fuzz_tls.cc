// SPDX-License-Identifier: BSD-3-Clause
// Goal: no ciphertext makes the TLS engine crash, hang, or return bytes that the peer did not send.
// Method: the first byte selects the role under attack, the newest version, and the mode: the input
// as the peer's handshake; the input after a valid handshake; or a valid peer whose ciphertext the
// input cuts into pieces, changes and ends. Run by `make fuzz`, with the seeds in corpus/tls.

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "conn/tls/context.h"
#include "conn/tls/engine/engine.h"
#include "conn/tls/gather.h"

namespace {

using conn::tls::Engine;
using conn::tls::Role;

void require(bool condition) {
  if (!condition) std::abort();
}

/// A self-signed certificate and its key, in one file of this process.
std::string make_identity() {
  std::string folder = std::filesystem::temp_directory_path() / "aeconn-fuzz-XXXXXX";
  require(mkdtemp(folder.data()) != nullptr);
  const std::string path = folder + "/identity.pem";
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -86400);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 86400L * 3650);
  X509_set_pubkey(certificate, key);
  require(X509_sign(certificate, key, EVP_sha256()) != 0);
  FILE* file = std::fopen(path.c_str(), "w");
  require(file != nullptr);
  require(PEM_write_X509(file, certificate) == 1);
  require(PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  std::fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return path;
}

/// One context for each version.
class Contexts {
 public:
  static const conn::tls::Context& of(bool tls12) {
    static const Contexts all;
    return tls12 ? all.tls12_ : all.tls13_;
  }

 private:
  Contexts() {
    for (const auto* context : {&tls12_, &tls13_}) {
      (void)context->server();
      (void)context->client();
    }
    std::filesystem::remove_all(std::filesystem::path(identity_).parent_path());
  }
  conn::tls::Settings settings(const char* version) const {
    return conn::tls::parse_settings(
        {{"cert", identity_}, {"verify", "no"}, {"alpn", "kv,http/1.1"}, {"max-version", version}});
  }

  const std::string identity_ = make_identity();
  const conn::tls::Context tls12_{settings("1.2"), conn::tls::Secret()};
  const conn::tls::Context tls13_{settings("1.3"), conn::tls::Secret()};
};

/// Bytes under way to an engine; its output goes to `out`.
struct Memory final : conn::tls::Wire {
  ssize_t receive(void* buffer, std::size_t size) override {
    if (in.empty()) {
      if (ended) return 0;
      errno = EAGAIN;
      return -1;
    }
    const std::size_t n = std::min({size, in.size(), step});
    std::copy_n(in.data(), n, static_cast<char*>(buffer));
    in.erase(0, n);
    return static_cast<ssize_t>(n);
  }
  ssize_t transmit(const void* buffer, std::size_t size) override {
    const std::size_t n = std::min(size, step);
    out.append(static_cast<const char*>(buffer), n);
    return static_cast<ssize_t>(n);
  }
  ssize_t transmit_record(std::uint8_t, const void*, std::size_t) override { std::abort(); }
  std::string in, out;
  std::size_t step = SIZE_MAX;
  bool ended = false;
};

struct Ends {
  explicit Ends(bool tls12) : context(Contexts::of(tls12)) {}
  const conn::tls::Context& context;
  Memory wires[2];
  Engine client{context.client(), Role::kClient, wires[0]};
  Engine server{context.server(), Role::kServer, wires[1]};
  void carry() {
    wires[1].in += std::exchange(wires[0].out, {});
    wires[0].in += std::exchange(wires[1].out, {});
  }
  void shake_hands() {
    bool over = false;
    for (int i = 0; i < 20'000 && !over; ++i) {
      const Engine::Step there = client.handshake();
      (void)client.flush();
      carry();
      const Engine::Step here = server.handshake();
      (void)server.flush();
      carry();
      over = there == Engine::Step::kDone && here == Engine::Step::kDone;
    }
    require(over);
  }
};

/// As the connections of a loop share it.
std::span<char> shared_room() {
  static char room[Engine::kRoom];
  return room;
}

/// Reads until no more bytes come, which must happen. `size`: of the program's buffer.
void drain(Engine& engine, std::string& got, std::size_t size = 777) {
  static char buffer[80'000];
  for (int i = 0; i < 100'000; ++i) {
    const ssize_t n = engine.read(buffer, size, shared_room());
    if (n <= 0) {
      require(n == 0 ? engine.progress().ended() : engine.failed() || errno == EAGAIN);
      if (n < 0 && !engine.failed() && engine.readable()) continue;
      return;
    }
    got.append(buffer, static_cast<std::size_t>(n));
  }
  std::abort();
}

void attack_handshake(Engine& victim, Memory& wire, std::string bytes) {
  (void)victim.handshake();
  wire.in = std::move(bytes);
  wire.ended = true;
  for (std::size_t i = wire.in.size() + 10; i > 0 && !victim.failed(); --i) {
    require(victim.handshake() != Engine::Step::kDone);
  }
  require(victim.failed() && !victim.failure().text.empty());
}

void attack_data(Engine& victim, Memory& wire, std::string bytes) {
  std::string got;
  drain(victim, got);
  wire.in = std::move(bytes);
  wire.ended = true;
  for (std::size_t i = wire.in.size() + 10; i > 0 && !victim.failed() && !victim.progress().ended();
       --i) {
    drain(victim, got);
  }
  require(got.empty() && victim.failed());  // the input cannot know the keys
}

/// The input is a program: pairs of an instruction and its operand.
void disturb(Ends& ends, bool server_reads, std::span<const std::uint8_t> program) {
  Engine& writer = server_reads ? ends.client : ends.server;
  Engine& reader = server_reads ? ends.server : ends.client;
  Memory& wire = ends.wires[server_reads ? 1 : 0];
  std::string sent, got;
  for (std::size_t i = 0; i + 1 < program.size() && i < 400; i += 2) {
    const std::size_t operand = program[i + 1];
    switch (program[i] % 8) {
      case 0:
      case 1: {
        const std::string bytes(operand * (program[i] < 128 ? 1 : 397) + 1, static_cast<char>(i));
        const ssize_t n =
            conn::tls::encrypt_large(writer, bytes.data(), bytes.size(), shared_room());
        if (n > 0) sent.append(bytes, 0, static_cast<std::size_t>(n));
        break;
      }
      case 2:
        ends.carry();
        break;
      case 3:
        if (!wire.in.empty()) {
          char& byte = wire.in[operand % wire.in.size()];
          byte = static_cast<char>(byte ^ (1 << (i % 8)));
        }
        break;
      case 4:
        ends.wires[0].step = ends.wires[1].step = operand + 1;
        break;
      case 5:
        drain(reader, got, operand % 2 == 0 ? 777 : operand * 300);
        break;
      case 6:
        if (operand % 2 == 0) (void)SSL_key_update(writer.ssl(), SSL_KEY_UPDATE_REQUESTED);
        reader.release_buffers();
        writer.release_buffers();
        break;
      default:
        if (operand % 8 == 0) writer.close_notify();
        if (operand % 8 == 1) wire.ended = true;
        (void)reader.look(operand % 2 == 0);
        break;
    }
    (void)writer.flush();
    (void)reader.flush();
    require(sent.starts_with(got));
  }
  ends.carry();
  drain(reader, got);
  require(sent.starts_with(got));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const bool server = (data[0] & 1) != 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Ends ends((data[0] & 16) != 0);
  Engine& victim = server ? ends.server : ends.client;
  Memory& wire = ends.wires[server ? 1 : 0];
  wire.step = (data[0] & 8) != 0 ? 1 + data[1] % 7 : SIZE_MAX;
  switch (data[0] >> 1 & 3) {
    case 0:
    case 3:
      attack_handshake(victim, wire, bytes);
      break;
    case 1:
      ends.shake_hands();
      attack_data(victim, wire, bytes);
      break;
    default:
      ends.shake_hands();
      disturb(ends, server, {data + 1, size - 1});
      break;
  }
  return 0;
}
