// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/resume_message.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "conn/rdma/protocol/big_endian.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// A resume message begins with "AECN", like a hello (private data of a first connection), but has
// another format version, so that no release of this library mistakes it for a hello.
constexpr std::uint32_t kResumeMagic = 0x4145434e;
constexpr std::uint8_t kResumeVersion = 2;
constexpr std::size_t kReleaseAt = 5, kFlagsAt = 8, kGenerationAt = 12, kReceivesAt = 16,
                      kMtuAt = 20, kReasonAt = 21, kSessionNumberAt = 24, kReceivedAt = 32,
                      kMacAt = 40;
constexpr std::uint8_t kLowestMtuCode = 1, kHighestMtuCode = 5;

// A byte, not sent, that the message authentication code (MAC) covers in front of the message. It
// makes the MACs of requests and answers differ, so that neither can be used as the other.
enum class MacDomain : std::uint8_t { kRequest = 1, kAnswer = 2 };

// Returns the message authentication code (MAC) of the first 40 bytes of a message and of `more`:
// for a request, the requester's address (BoundAddress); for an answer, the MAC of the request.
SipHash mac_of(std::span<const std::byte> message, MacDomain domain, const SipKey& key,
               std::span<const std::byte> more) noexcept {
  const auto first = static_cast<std::byte>(domain);
  SipHasher hasher(key);
  hasher.add({&first, 1});
  hasher.add(message.first(kMacAt));
  hasher.add(more);
  return hasher.finish();
}

ResumeBytes seal(const ResumeMessage& message, MacDomain domain, const SipKey& key,
                 std::span<const std::byte> more) noexcept {
  ResumeBytes bytes{};
  const std::span<std::byte> at(bytes);
  const Hello& hello = message.hello;
  put(at, kResumeMagic);
  put(at.subspan(4), kResumeVersion);
  for (std::size_t i = 0; i < hello.release.size(); ++i)
    put(at.subspan(kReleaseAt + i), hello.release[i]);
  put(at.subspan(kFlagsAt), hello.flags);
  put(at.subspan(kGenerationAt), message.generation);
  put(at.subspan(kMtuAt), hello.mtu);
  put(at.subspan(kReasonAt), static_cast<std::uint8_t>(message.reason));
  put(at.subspan(kSessionNumberAt), message.session);
  const bool forgets = message.reason == ResumeReason::kForget;
  put(at.subspan(kReceivesAt),
      forgets ? static_cast<std::uint32_t>(message.received) : hello.receives);
  put(at.subspan(kReceivedAt), forgets ? message.total : message.received);
  const SipHash mac = mac_of(bytes, domain, key, more);
  std::copy(mac.begin(), mac.end(), at.subspan(kMacAt).begin());
  return bytes;
}

bool verify(std::span<const std::byte> private_data, MacDomain domain, const SipKey& key,
            std::span<const std::byte> more) noexcept {
  if (private_data.size() < sizeof(ResumeBytes)) return false;
  SipHash sent{};
  const auto mac = private_data.subspan(kMacAt, sent.size());
  std::copy(mac.begin(), mac.end(), sent.begin());
  return equal_in_constant_time(sent, mac_of(private_data, domain, key, more));
}

Hello hello_in(std::span<const std::byte> bytes) noexcept {
  Hello hello{get<std::uint32_t>(bytes.subspan(kFlagsAt))};
  for (std::size_t i = 0; i < hello.release.size(); ++i)
    hello.release[i] = get<std::uint8_t>(bytes.subspan(kReleaseAt + i));
  if ((hello.flags & Hello::kTellsReceives) != 0)
    hello.receives = get<std::uint32_t>(bytes.subspan(kReceivesAt));
  const auto mtu = get<std::uint8_t>(bytes.subspan(kMtuAt));
  if (mtu < kLowestMtuCode || mtu > kHighestMtuCode) hello.flags &= ~Hello::kTellsMtu;
  if ((hello.flags & Hello::kTellsMtu) != 0) hello.mtu = mtu;
  return hello;
}

constexpr std::pair<Refused, std::string_view> kTexts[] = {
    {Refused::kUnknown, "resume: unknown session"},
    {Refused::kOver, "resume: the stream is over"},
    {Refused::kGap, "resume: bytes are missing"},
};

}  // namespace

BoundAddress bound_address(const SocketAddress& from) noexcept {
  BoundAddress bound{};
  const std::span<std::byte> at(bound);
  if (from.family() == AF_INET6) {
    const auto& six = *reinterpret_cast<const sockaddr_in6*>(from.get());
    std::memcpy(bound.data(), &six.sin6_addr, sizeof six.sin6_addr);
  } else if (from.family() == AF_INET) {
    const auto& four = *reinterpret_cast<const sockaddr_in*>(from.get());
    put(at.subspan(10), std::uint16_t{0xffff});
    std::memcpy(bound.data() + 12, &four.sin_addr, sizeof four.sin_addr);
  }
  put(at.subspan(16), from.port());
  return bound;
}

ResumeBytes seal_request(const ResumeMessage& message, const SipKey& key,
                         std::span<const std::byte> bound) noexcept {
  return seal(message, MacDomain::kRequest, key, bound);
}

ResumeBytes seal_answer(const ResumeMessage& message, const SipKey& key,
                        std::span<const std::byte, 16> request_mac) noexcept {
  return seal(message, MacDomain::kAnswer, key, request_mac);
}

std::optional<ResumeMessage> decode_resume(std::span<const std::byte> private_data) noexcept {
  if (private_data.size() < sizeof(ResumeBytes)) return std::nullopt;
  if (get<std::uint32_t>(private_data) != kResumeMagic) return std::nullopt;
  if (get<std::uint8_t>(private_data.subspan(4)) != kResumeVersion) return std::nullopt;
  const auto reason = get<std::uint8_t>(private_data.subspan(kReasonAt));
  if (reason > static_cast<std::uint8_t>(ResumeReason::kForget)) return std::nullopt;
  ResumeMessage message;
  message.hello = hello_in(private_data);
  message.generation = get<std::uint32_t>(private_data.subspan(kGenerationAt));
  message.session = get<std::uint64_t>(private_data.subspan(kSessionNumberAt));
  message.reason = static_cast<ResumeReason>(reason);
  message.received = get<std::uint64_t>(private_data.subspan(kReceivedAt));
  if (message.reason == ResumeReason::kForget) {
    message.total =
        std::exchange(message.received, get<std::uint32_t>(private_data.subspan(kReceivesAt)));
    message.hello.flags &= ~Hello::kTellsReceives;
    message.hello.receives = 0;
  }
  const auto mac = private_data.subspan(kMacAt, message.mac.size());
  std::copy(mac.begin(), mac.end(), message.mac.begin());
  return message;
}

bool verify_request(std::span<const std::byte> private_data, const SipKey& key,
                    std::span<const std::byte> bound) noexcept {
  return verify(private_data, MacDomain::kRequest, key, bound);
}

bool verify_answer(std::span<const std::byte> private_data, const SipKey& key,
                   std::span<const std::byte, 16> request_mac) noexcept {
  return verify(private_data, MacDomain::kAnswer, key, request_mac);
}

std::string_view text_of(Refused refused) noexcept {
  for (const auto& [each, text] : kTexts)
    if (each == refused) return text;
  return {};
}

Refused refused_in(std::string_view text) noexcept {
  if (text.starts_with(": ")) text.remove_prefix(2);
  for (const auto& [refused, known] : kTexts)
    if (text.starts_with(known)) return refused;
  return Refused::kNone;
}

}}}  // namespace conn::rdma
