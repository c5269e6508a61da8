// SPDX-License-Identifier: BSD-3-Clause
// SipHash-2-4 with 128 bits, compared with the reference vectors of its authors and with OpenSSL's,
// and the kernel's random bytes.
#if AECONN_RDMA

#include "conn/rdma/protocol/siphash.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#if AECONN_TLS
#include <openssl/evp.h>
#include <openssl/params.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conn/rdma/protocol/random.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

// The hash of the bytes 00, 01, 02, ... for each length from 0 to 63, with the key 00, 01, ... 0f.
constexpr std::string_view kVectors[] = {
    "a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45",
    "8177228da4a45dc7fca38bdef60affe4", "9c70b60c5267a94e5f33b6b02985ed51",
    "f88164c12d9c8faf7d0f6e7c7bcd5579", "1368875980776f8854527a07690e9627",
    "14eeca338b208613485ea0308fd7a15e", "a1f1ebbed8dbc153c0b84aa61ff08239",
    "3b62a9ba6258f5610f83e264f31497b4", "264499060ad9baabc47f8b02bb6d71ed",
    "00110dc378146956c95447d3f3d0fbba", "0151c568386b6677a2b4dc6f81e5dc18",
    "d626b266905ef35882634df68532c125", "9869e247e9c08b10d029934fc4b952f7",
    "31fcefac66d7de9c7ec7485fe4494902", "5493e99933b0a8117e08ec0f97cfc3d9",
    "6ee2a4ca67b054bbfd3315bf85230577", "473d06e8738db89854c066c47ae47740",
    "a426e5e423bf4885294da481feaef723", "78017731cf65fab074d5208952512eb1",
    "9e25fc833f2290733e9344a5e83839eb", "568e495abe525a218a2214cd3e071d12",
    "4a29b54552d16b9a469c10528eff0aae", "c9d184ddd5a9f5e0cf8ce29a9abf691c",
    "2db479ae78bd50d8882a8a178a6132ad", "8ece5f042d5e447b5051b9eacb8d8f6f",
    "9c0b53b4b3c307e87eaee08678141f66", "abf248af69a6eae4bfd3eb2f129eeb94",
    "0664da1668574b88b935f3027358aef4", "aa4b9dc4bf337de90cd4fd3c467c6ab7",
    "ea5c7f471faf6bde2b1ad7d4686d2287", "2939b0183223fafc1723de4f52c43d35",
    "7c3956ca5eeafc3e363e9d556546eb68", "77c6077146f01c32b6b69d5f4ea9ffcf",
    "37a6986cb8847edf0925f0f1309b54de", "a705f0e69da9a8f907241a2e923c8cc8",
    "3dc47d1f29c448461e9e76ed904f6711", "0d62bf01e6fc0e1a0d3c4751c5d3692b",
    "8c03468bca7c669ee4fd5e084bbee7b5", "528a5bb93baf2c9c4473cce5d0d22bd9",
    "df6a301e95c95dad97ae0cc8c6913bd8", "801189902c857f39e73591285e70b6db",
    "e617346ac9c231bb3650ae34ccca0c5b", "27d93437efb721aa401821dcec5adf89",
    "89237d9ded9c5e78d8b1c9b166cc7342", "4a6d8091bf5e7d651189fa94a250b14c",
    "0e33f96055e7ae893ffc0e3dcf492902", "e61c432b720b19d18ec8d84bdc63151b",
    "f7e5aef549f782cf379055a608269b16", "438d030fd0b7a54fa837f2ad201a6403",
    "a590d3ee4fbf04e3247e0d27f286423f", "5fe2c1a172fe93c4b15cd37caef9f538",
    "2c97325cbd06b36eb2133dd08b3a017c", "92c814227a6bca949ff0659f002ad39e",
    "dce850110bd8328cfbd50841d6911d87", "67f14984c7da791248e32bb5922583da",
    "1938f2cf72d54ee97e94166fa91d2a36", "74481e9646ed49fe0f6224301604698e",
    "57fca5de98a9d6d8006438d0583d8a1d", "9fecde1cefdc1cbed4763674d9575359",
    "e3040c00eb28f15366ca73cbd872e740", "7697009a6a831dfecca91c5993670f7a",
    "5853542321f567a005d547a4f04759bd", "5150d1772f50834a503e069a973fbd7c",
};

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte each : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(each) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(each) & 15];
  }
  return text;
}

SipKey key_of_vectors() {
  SipKey key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  return key;
}

std::vector<std::byte> counted(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i & 0xff);
  return bytes;
}

TEST_CASE("rdma siphash: the reference vectors of the variant with 128 bits", "[rdma][siphash]") {
  STATIC_REQUIRE(std::size(kVectors) == 64);
  for (std::size_t size = 0; size < std::size(kVectors); ++size) {
    CAPTURE(size);
    CHECK(hex(siphash128(key_of_vectors(), counted(size))) == kVectors[size]);
  }
}

TEST_CASE("rdma siphash: a text in pieces has the hash of the whole", "[rdma][siphash]") {
  const auto bytes = counted(300);
  const auto seed = GENERATE(take(20, random(0u, 0x7fffffffu)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  SipHasher hasher(key_of_vectors());
  for (std::span<const std::byte> rest(bytes); !rest.empty();) {
    const std::size_t size = std::min<std::size_t>(rest.size(), random() % 20);
    hasher.add(rest.first(size));
    rest = rest.subspan(size);
  }
  CHECK(hasher.finish() == siphash128(key_of_vectors(), bytes));
}

TEST_CASE("rdma siphash: two hashes are equal only in all bits", "[rdma][siphash]") {
  const SipHash hash = siphash128(key_of_vectors(), {});
  CHECK(equal_in_constant_time(hash, hash));
  for (std::size_t bit = 0; bit < 8 * hash.size(); ++bit) {
    SipHash other = hash;
    other[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    CHECK_FALSE(equal_in_constant_time(hash, other));
  }
}

#if AECONN_TLS && OPENSSL_VERSION_NUMBER >= 0x30000000L
SipHash hash_of_openssl(const SipKey& key, std::span<const std::byte> bytes) {
  SipHash hash{};
  EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "SIPHASH", nullptr);
  REQUIRE(mac != nullptr);
  EVP_MAC_CTX* const context = EVP_MAC_CTX_new(mac);
  std::size_t size = hash.size();
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_size_t("size", &size),
                                   OSSL_PARAM_construct_end()};
  std::size_t written = 0;
  const bool made = EVP_MAC_init(context, reinterpret_cast<const unsigned char*>(key.data()),
                                 key.size(), parameters) == 1 &&
                    EVP_MAC_update(context, reinterpret_cast<const unsigned char*>(bytes.data()),
                                   bytes.size()) == 1 &&
                    EVP_MAC_final(context, reinterpret_cast<unsigned char*>(hash.data()), &written,
                                  hash.size()) == 1;
  EVP_MAC_CTX_free(context);
  EVP_MAC_free(mac);
  REQUIRE(made);
  REQUIRE(written == hash.size());
  return hash;
}

// Goal: the same function as that of others, also beyond 63 bytes, where the number of bytes in the
// last word wraps, and for other keys. Method: random keys and bytes, of each length, to OpenSSL's.
TEST_CASE("rdma siphash: the same as OpenSSL's", "[rdma][siphash]") {
  std::mt19937 random(7);
  const auto byte = [&random] { return static_cast<std::byte>(random() & 0xff); };
  for (std::size_t size = 0; size <= 520; ++size) {
    CAPTURE(size);
    SipKey key;
    std::generate(key.begin(), key.end(), byte);
    std::vector<std::byte> bytes(size);
    std::generate(bytes.begin(), bytes.end(), byte);
    CHECK(hex(siphash128(key, bytes)) == hex(hash_of_openssl(key, bytes)));
  }
}
#endif

TEST_CASE("rdma random: fills all bytes and no more, differently each time", "[rdma][random]") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{33},
                                 std::size_t{1000}, std::size_t{100000}}) {
    CAPTURE(size);
    std::vector<std::byte> bytes(size + 2, std::byte{0x55});
    REQUIRE(fill_random(std::span(bytes).subspan(1, size)));
    CHECK(bytes.front() == std::byte{0x55});
    CHECK(bytes.back() == std::byte{0x55});
    if (size < 16) continue;
    auto again = bytes;
    REQUIRE(fill_random(std::span(again).subspan(1, size)));
    // Sixteen bytes in a row that keep their value mean that they were not written.
    for (std::size_t at = 1; at + 16 <= size + 1; at += 16)
      REQUIRE_FALSE(std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                               bytes.begin() + static_cast<std::ptrdiff_t>(at + 16),
                               again.begin() + static_cast<std::ptrdiff_t>(at)));
  }
}

// Goal: all bytes are filled where the kernel gives them in pieces. Method: a child asks for many
// while a timer interrupts it each millisecond.
TEST_CASE("rdma random: fills all bytes in spite of signals", "[rdma][random]") {
  std::vector<std::byte> bytes(std::size_t{64} << 20);
  const pid_t child = fork();
  if (child == 0) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    const itimerval each_millisecond{{0, 1000}, {0, 1000}};
    if (sigaction(SIGALRM, &action, nullptr) != 0 ||
        setitimer(ITIMER_REAL, &each_millisecond, nullptr) != 0)
      _exit(2);
    const bool filled = fill_random(bytes);
    _exit(filled && std::any_of(bytes.end() - 64, bytes.end(),
                                [](std::byte each) { return each != std::byte{}; })
              ? 0
              : 1);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

// Goal: no zeros, or old bytes, become a key. Method: a child forbids itself the system call.
TEST_CASE("rdma random: says so when the kernel gives none", "[rdma][random]") {
  enum Result { kRight, kWrong, kNoFilter };
  const int result = testing::forked([] {
    if (!testing::forbid({SYS_getrandom}, EPERM)) return kNoFilter;
    SipKey key = key_of_vectors();
    return !fill_random(key) && errno == EPERM && key == SipKey{} ? kRight : kWrong;
  });
  if (result == kNoFilter) WARN("this kernel has no filters of system calls");
  CHECK((result == kRight || result == kNoFilter));
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
