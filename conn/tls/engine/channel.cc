// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/channel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "ae/once.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

// Control commands that OpenSSL sends to the BIO of a kernel TLS socket. bio.h lists the numbers
// only in a comment.
constexpr int kNextIsControl = 74, kControlIsOver = 75;

}  // namespace

BIO* Channel::make_bio() {
  const BioMethodPtr& method = kernel.possible()
                                   ? ae::once([] { return BioMethodPtr(make_method(true)); })
                                   : ae::once([] { return BioMethodPtr(make_method(false)); });
  BIO* bio = BIO_new(method.get());
  if (bio == nullptr) throw std::bad_alloc();
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  return bio;
}

BIO_METHOD* Channel::make_method(bool with_kernel) {
  BioMethodPtr method(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "aeconn"));
  if (!method) throw std::bad_alloc();
  BIO_meth_set_write(method.get(), &Channel::write);
  BIO_meth_set_read(method.get(), &Channel::read);
  BIO_meth_set_ctrl(method.get(), with_kernel ? &Channel::control_kernel : &Channel::control);
  return method.release();
}

Channel& Channel::of(BIO* bio) { return *static_cast<Channel*>(BIO_get_data(bio)); }

int Channel::read(BIO* bio, char* buffer, int size) {
  BIO_clear_retry_flags(bio);
  if (size <= 0) return 0;
  Channel& channel = of(bio);
  const ssize_t n = channel.receive(buffer, static_cast<std::size_t>(size));
  if (n < 0 && !channel.wire.failed()) BIO_set_retry_read(bio);
  return static_cast<int>(n);
}

/// Reads ciphertext for OpenSSL. Returns what BIO_read(3) returns: the number of bytes, 0 at end of
/// stream, -1 if nothing is available or on failure.
ssize_t Channel::receive(char* buffer, std::size_t size) {
  if (!room_.empty()) return receive_ahead(buffer, size);
  if (!supply.ask(output.unsent() >= kMostUnsent)) return -1;
  if (kernel.has_receive_key()) return receive_from_kernel(buffer, size);
  return received(wire.receive(buffer, size), size);
}

/// Does what receive() does during a large read, that is, between stage() and end_stage(): one read
/// of the wire (connection below TLS) may fetch many records into the buffer room_.
ssize_t Channel::receive_ahead(char* buffer, std::size_t size) {
  const bool withhold = output.unsent() >= kMostUnsent;
  if (!left_.empty()) return supply.ask_for_left(withhold) ? take_left(buffer, size) : -1;
  if (!supply.ask(withhold)) return -1;
  if (kernel.has_receive_key()) return receive_from_kernel(buffer, size);
  const std::size_t most = most_of_wire(size);
  if (most <= size) return received(wire.receive(buffer, size), size);
  const ssize_t n = received(wire.receive(room_.data(), most), most);
  if (n <= 0) return n;
  left_ = room_.first(static_cast<std::size_t>(n));
  return take_left(buffer, size);
}

/// Records that a read of the wire (connection below TLS) for `asked` bytes has returned `n`.
/// Returns what receive() returns.
inline ssize_t Channel::received(ssize_t n, std::size_t asked) noexcept {
  if (n > 0) {
    // After a short read the wire (connection below TLS) is taken to be empty: another read would
    // cost a system call and find nothing. But if a write has failed, reading continues until
    // everything that is left has been read.
    supply.got(static_cast<std::size_t>(n), static_cast<std::size_t>(n) < asked && !wire.failed());
    return n;
  }
  if (n == CheckedWire::kNothingNow) supply.got_nothing();
  return n == 0 ? 0 : -1;
}

/// Returns how many bytes one read of the wire (connection below TLS) may fetch if OpenSSL asks for
/// `asked` bytes: the record, or the rest of one, that OpenSSL asks for, and full records for the
/// data that the program wants beyond that (see `wanted`). They hold no more data than the program
/// wants, so that OpenSSL decrypts all of them within the program's read.
std::size_t Channel::most_of_wire(std::size_t asked) const noexcept {
  constexpr std::size_t kRecord = 16384;
  const std::size_t more = wanted > kRecord ? wanted - kRecord : 0;
  const std::size_t records = (more + kRecord - 1) / kRecord;
  return std::min(room_.size(), std::min(asked, kRecord + overhead) + more + records * overhead);
}

ssize_t Channel::take_left(char* buffer, std::size_t size) noexcept {
  size = std::min(size, left_.size());
  std::memcpy(buffer, left_.data(), size);
  left_ = left_.subspan(size);
  return static_cast<ssize_t>(size);
}

ssize_t Channel::receive_from_kernel(char* buffer, std::size_t size) {
  // reading is refused, for example, in a forked child, which must not use the connection
  if (wire.refuses_reads()) return -1;
  bool later = false;
  const int n = kernel.receive_record(buffer, size, later);
  if (n > 0) {
    supply.got(static_cast<std::size_t>(n), false);
  } else if (later) {
    supply.got_nothing();
    return -1;
  } else if (n == 0) {
    wire.end();
  } else {
    wire.fail(errno);
  }
  return n;
}

int Channel::write(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  if (size <= 0) return 0;
  Channel& channel = of(bio);
  const std::size_t n = channel.output.put(bytes, static_cast<std::size_t>(size));
  if (n != 0) return static_cast<int>(n);
  if (channel.wire.failed() && channel.hides_write_failures) return size;
  if (!channel.wire.failed()) BIO_set_retry_write(bio);
  return -1;
}

long Channel::control(BIO* bio, int command, long, void*) {
  // Checked first, because OpenSSL asks about ten times for each record whether the kernel encrypts
  // or decrypts.
  if (command == BIO_CTRL_GET_KTLS_SEND || command == BIO_CTRL_GET_KTLS_RECV) return 0;
  if (command == BIO_CTRL_EOF) return of(bio).wire.ended() ? 1 : 0;
  return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP ? 1 : 0;
}

/// Handles a control command of OpenSSL to the BIO of a connection on which kernel TLS is possible;
/// for others control() does. Returns the result of the command.
long Channel::control_kernel(BIO* bio, int command, long number, void* pointer) {
  Channel& channel = of(bio);
  switch (command) {
    case KernelTls::kSetKeys:
      // The kernel must not take over while encrypted bytes are unsent: it would encrypt them
      // again.
      if (channel.output.unsent() != 0) return 0;
      return channel.kernel.control(command, number, pointer);
    case BIO_CTRL_GET_KTLS_SEND:
    case BIO_CTRL_GET_KTLS_RECV:
      return channel.kernel.control(command, number, pointer);
    case kNextIsControl:
      channel.output.set_type(static_cast<std::uint8_t>(number));
      return 1;
    case kControlIsOver:
      channel.output.set_type(0);
      return 1;
    default:
      return control(bio, command, number, pointer);
  }
}

}}}  // namespace conn::tls
