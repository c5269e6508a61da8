// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/wire.h"

#include <algorithm>

#include "conn/rdma/protocol/big_endian.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// A hello (private data of rdma_cm with which an aeconn peer describes itself) begins with the four
// bytes "AECN" (kMagic), followed by the version of its format.
constexpr std::uint32_t kMagic = 0x4145434e;
constexpr std::uint8_t kVersion = 1;
// Sizes in bytes of the shorter hello messages of earlier releases: kFirstHelloSize without the
// number of receives and the MTU, kReceivesEnd with the number of receives but without the MTU.
constexpr std::size_t kFirstHelloSize = 16, kReceivesEnd = 20;
constexpr std::uint8_t kLeastMtu = 1, kMostMtu = 5;
// Offsets in bytes of those members of an encoded hello (class Hello) that follow its first 24
// bytes if it has the flag kResumes.
constexpr std::size_t kResumeAt = 24, kSessionAt = 28, kKeyAt = 36;

std::size_t size_with_resume(HelloKind kind) {
  return kind == HelloKind::kRequest ? Hello::kRequestSize : Hello::kAnswerSize;
}

// Reads those members of an encoded hello that are present if it has the flag kResumes. Clears the
// flag if they are missing or zero.
void take_resume(Hello& hello, std::span<const std::byte> bytes, HelloKind kind) {
  if ((hello.flags & Hello::kResumes) != 0 && bytes.size() >= size_with_resume(kind)) {
    hello.resume_ms = get<std::uint32_t>(bytes.subspan(kResumeAt));
    if (kind == HelloKind::kAnswer) {
      hello.grant.session = get<std::uint64_t>(bytes.subspan(kSessionAt));
      const auto key = bytes.subspan(kKeyAt, hello.grant.key.size());
      std::copy(key.begin(), key.end(), hello.grant.key.begin());
    }
    const bool granted = hello.grant.session != 0 && hello.grant.key != SipKey{};
    if (hello.resume_ms != 0 && (kind == HelloKind::kRequest || granted)) return;
  }
  hello.flags &= ~Hello::kResumes;
  hello.resume_ms = 0;
  hello.grant = {};
}

}  // namespace

ControlBytes encode(const ControlMessage& message) {
  ControlBytes bytes{};
  const std::span<std::byte> at(bytes);
  put(at, static_cast<std::uint16_t>(message.opcode));
  switch (message.opcode) {
    case Opcode::kGetServerFeature:
    case Opcode::kSetClientFeature:
      put(at.subspan(2), message.select);
      put(at.subspan(24), message.features);
      break;
    case Opcode::kKeepalive:
      break;
    case Opcode::kRegisterXferMemory:
      put(at.subspan(2), message.select);
      put(at.subspan(16), message.address);
      put(at.subspan(24), message.length);
      put(at.subspan(28), message.key);
      break;
  }
  return bytes;
}

std::optional<ControlMessage> decode(std::span<const std::byte> bytes) {
  if (bytes.size() != kControlSize) return std::nullopt;
  const auto opcode = get<std::uint16_t>(bytes);
  if (opcode > static_cast<std::uint16_t>(Opcode::kRegisterXferMemory)) return std::nullopt;
  ControlMessage message;
  message.opcode = static_cast<Opcode>(opcode);
  switch (message.opcode) {
    case Opcode::kGetServerFeature:
    case Opcode::kSetClientFeature:
      message.select = get<std::uint16_t>(bytes.subspan(2));
      message.features = get<std::uint64_t>(bytes.subspan(24));
      break;
    case Opcode::kKeepalive:
      break;
    case Opcode::kRegisterXferMemory:
      message.select = get<std::uint16_t>(bytes.subspan(2));
      message.address = get<std::uint64_t>(bytes.subspan(16));
      message.length = get<std::uint32_t>(bytes.subspan(24));
      message.key = get<std::uint32_t>(bytes.subspan(28));
      break;
  }
  return message;
}

HelloBytes encode(const Hello& hello, HelloKind kind) {
  const bool resumes = (hello.flags & Hello::kResumes) != 0;
  HelloBytes bytes(!resumes ? Hello::kSize : size_with_resume(kind));
  const std::span<std::byte> at(bytes);
  put(at, kMagic);
  put(at.subspan(4), kVersion);
  for (std::size_t i = 0; i < hello.release.size(); ++i) put(at.subspan(5 + i), hello.release[i]);
  put(at.subspan(8), hello.flags);
  put(at.subspan(12), hello.keepalive_ms);
  put(at.subspan(16), hello.receives);
  put(at.subspan(kReceivesEnd), hello.mtu);
  if (!resumes) return bytes;
  put(at.subspan(kResumeAt), hello.resume_ms);
  if (kind == HelloKind::kRequest) return bytes;
  put(at.subspan(kSessionAt), hello.grant.session);
  std::copy(hello.grant.key.begin(), hello.grant.key.end(), at.subspan(kKeyAt).begin());
  return bytes;
}

std::optional<Hello> decode_hello(std::span<const std::byte> private_data, HelloKind kind) {
  if (private_data.size() < kFirstHelloSize) return std::nullopt;
  if (get<std::uint32_t>(private_data) != kMagic) return std::nullopt;
  if (get<std::uint8_t>(private_data.subspan(4)) != kVersion) return std::nullopt;
  Hello hello{get<std::uint32_t>(private_data.subspan(8)),
              get<std::uint32_t>(private_data.subspan(12))};
  for (std::size_t i = 0; i < hello.release.size(); ++i)
    hello.release[i] = get<std::uint8_t>(private_data.subspan(5 + i));
  if (private_data.size() < kReceivesEnd) hello.flags &= ~Hello::kTellsReceives;
  if (private_data.size() < Hello::kSize) hello.flags &= ~Hello::kTellsMtu;
  if ((hello.flags & Hello::kTellsReceives) != 0)
    hello.receives = get<std::uint32_t>(private_data.subspan(16));
  if ((hello.flags & Hello::kTellsMtu) != 0)
    hello.mtu = get<std::uint8_t>(private_data.subspan(kReceivesEnd));
  if (hello.mtu < kLeastMtu || hello.mtu > kMostMtu) {
    hello.mtu = 0;
    hello.flags &= ~Hello::kTellsMtu;
  }
  take_resume(hello, private_data, kind);
  return hello;
}

}}}  // namespace conn::rdma
