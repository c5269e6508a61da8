// SPDX-License-Identifier: BSD-3-Clause
// Goal: no hello, no answer and no words of a peer's page make shm read or write outside of its
// rings, or believe a position that is impossible; and no destination in a hello is taken for one
// that is served. Method: the input is decoded as both messages;
// then it is a list of steps, in which a hostile peer stores words between the calls of this end.
// Run by `make fuzz`, with the seeds in corpus/shm.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "conn/shm/destination.h"
#include "conn/shm/hello.h"
#include "conn/shm/ring.h"

namespace {

using namespace conn::shm;
using conn::Endpoint;
using conn::Failure;

void require(bool condition) {
  if (!condition) std::abort();
}

/// Every destination gets an answer, and only one that names what is served is not refused.
void check_destination(Destination to) {
  static const Served addresses = [] {
    Endpoint at = Endpoint::parse("shm|tcp://127.0.0.1,10.0.0.1,[::]:6379?shm-path=/x");
    at.scheme = "shm";
    return Served(at);
  }();
  static const Destination here = [] {  // the fuzzer cannot guess its network namespace
    Failure why;
    return destination_of(Endpoint::parse("tcp://127.0.0.1:6379"),
                          conn::resolve("127.0.0.1", 6379, false).addresses, why);
  }();
  require(addresses.why_not(here).empty());
  require(to.text.empty() || !Served().why_not(to).empty());
  const std::string stranger = addresses.why_not(to);
  require(to.text.empty() == stranger.empty() || (to.inode == here.inode && here.inode != 0));
  to.device = here.device;
  to.inode = here.inode;
  if (!to.text.empty() && addresses.why_not(to).empty())
    require(to.text.ends_with(":6379") && to.text.size() > 5);
}

void check_messages(std::string_view bytes) {
  if (bytes.size() < kHeader) return;
  const std::size_t length = message_length(bytes);
  require(length == 0 || (length >= kHeader && length <= kMostMessage));
  if (length == 0 || length > bytes.size()) return;
  const std::string_view message = bytes.substr(0, length);
  Hello hello;
  if (decode(message, 1 << 20, hello).status == Answer::kStands) {
    require(may_begin(message));
    require(is_ring_size(hello.client_ring) && hello.client_ring <= 1 << 20);
    require(is_ring_size(hello.server_ring) && hello.server_ring <= 1 << 20);
    Hello again;
    require(decode(encode(hello), 1 << 20, again).status == Answer::kStands);
    require(again.client_ring == hello.client_ring && again.server_ring == hello.server_ring);
    const Destination &to = hello.destination, &same = again.destination;
    require(to.text.empty() || is_destination(to.text));
    require(same.text == to.text && same.device == to.device && same.inode == to.inode);
    check_destination(to);
  }
  Answer answer;
  if (decode(message, answer)) require(answer.text.size() <= kMostMessage - kHeader);
}

/// This end, and the page and ring of a peer that stores what it likes.
class End {
 public:
  void step(unsigned action, std::uint64_t value) {
    switch (action % 12) {
      case 0:
        theirs_->tail = value;
        break;
      case 1:
        theirs_->tail = tail_ += value % 100'000;  // what an honest peer might do
        break;
      case 2:
        theirs_->fin = static_cast<std::uint32_t>(value);
        break;
      case 3:
        theirs_->head = value;
        break;
      case 4:
        theirs_->head = sent_ - value % (sent_ + 1);
        break;
      case 5:
        theirs_->closed = static_cast<std::uint32_t>(value);
        break;
      case 6:
        theirs_->wish = static_cast<std::uint32_t>(value);
        theirs_->room_wish = static_cast<std::uint32_t>(value >> 16);
        theirs_->room_at = value;
        break;
      case 7:
        std::memset(static_cast<void*>(mine_.get()), static_cast<int>(value), sizeof *mine_);
        break;
      case 8:
        write(value % 100'000);
        break;
      case 9:
        read(value % 100'000);
        break;
      case 10:
        reader_.wish();
        (void)reader_.look();
        reader_.unwish();
        break;
      default:
        writer_.wish();
        writer_.look();
        writer_.unwish();
        break;
    }
    require(reader_.unread() <= kRing && writer_.room() <= kRing);
  }

 private:
  static constexpr std::size_t kRing = kLeastRing;

  void write(std::size_t size) {
    const std::size_t n = writer_.put(buffer_.data(), size, [] {});
    writer_.publish([] {});
    sent_ += n;
    require(n <= size);
    if (n != 0) require(mine_->tail == sent_);
  }
  void read(std::size_t size) {
    const bool broken = reader_.broken() != nullptr;
    const std::size_t n = reader_.get(buffer_.data(), size, [] {});
    got_ += n;
    require(n <= size && (!broken || n == 0));
    if (n != 0) require(mine_->head == got_);
  }

  std::unique_ptr<Words> mine_ = std::make_unique<Words>(), theirs_ = std::make_unique<Words>();
  // Exactly as large as the rings, so that the sanitizer sees each byte beside them.
  std::vector<std::byte> out_ = std::vector<std::byte>(kRing), in_ = out_;
  std::vector<char> buffer_ = std::vector<char>(100'000);
  Writer writer_{*mine_, *theirs_, out_.data(), kRing};
  Reader reader_{*mine_, *theirs_, in_.data(), kRing};
  std::uint64_t sent_ = 0, got_ = 0, tail_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check_messages({reinterpret_cast<const char*>(data), size});
  End end;
  for (; size >= 9; data += 9, size -= 9) {
    std::uint64_t value = 0;
    std::memcpy(&value, data + 1, sizeof value);
    end.step(data[0], value);
  }
  return 0;
}
