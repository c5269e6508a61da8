// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The ciphertext side of an engine: the BIO (BIO_meth_new(3)) by which OpenSSL reads and writes,
// and the objects that the BIO needs. The engine decides what may be read and when output is kept;
// OpenSSL reads and writes.

#include <cstddef>
#include <span>
#include <utility>

#include "ae/abi.h"
#include "conn/tls/engine/kernel_tls.h"
#include "conn/tls/engine/output.h"
#include "conn/tls/engine/supply.h"
#include "conn/tls/engine/unused_input.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

struct Channel {
  /// If at least this many bytes are unsent, nothing more is read from the wire (connection below
  /// TLS), since reading would only cause more replies.
  static constexpr std::size_t kMostUnsent = Output::kMostGathered + 32768;

  /// `to`: where ciphertext is sent and received. `socket`: with kernel TLS the descriptor that
  /// `to` uses, else -1.
  Channel(Wire& to, int socket) : wire(to), kernel(socket) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Returns a new OpenSSL BIO that reads and writes through this Channel. Throws std::bad_alloc.
  BIO* make_bio();

  /// Begins a large read. OpenSSL asks the BIO for one record at a time, or for the rest of one.
  /// Until end_stage(), if the program wants more data than that (see `wanted`), one read of the
  /// wire (connection below TLS) may fetch many records into `room`, and OpenSSL's next requests
  /// are served from there.
  void stage(std::span<char> room) noexcept { room_ = room; }
  /// Ends the large read that stage() began. Returns those bytes in its buffer that OpenSSL has not
  /// taken. The caller must put them into `unused`.
  std::span<const char> end_stage() noexcept {
    room_ = {};
    return std::exchange(left_, {});
  }
  bool has_left() const noexcept { return !left_.empty(); }

  CheckedWire wire;
  UnusedInput unused{wire};
  Supply supply;
  Output output{wire};
  KernelTls kernel;
  /// True if failed writes are hidden from OpenSSL. After a failed write OpenSSL would no longer
  /// return data that the peer had sent before. Instead, the engine itself checks the wire
  /// (connection below TLS) after each write.
  bool hides_write_failures = false;
  std::size_t wanted = 0;    ///< bytes of data that the program's read still lacks
  std::size_t overhead = 0;  ///< smallest number of bytes that a record has besides its data

 private:
  static BIO_METHOD* make_method(bool with_kernel);
  static Channel& of(BIO* bio);
  static int read(BIO* bio, char* buffer, int size);
  static int write(BIO* bio, const char* bytes, int size);
  static long control(BIO* bio, int command, long number, void* pointer);
  static long control_kernel(BIO* bio, int command, long number, void* pointer);
  ssize_t receive(char* buffer, std::size_t size);
  ssize_t receive_ahead(char* buffer, std::size_t size);
  ssize_t received(ssize_t n, std::size_t asked) noexcept;
  ssize_t receive_from_kernel(char* buffer, std::size_t size);
  ssize_t take_left(char* buffer, std::size_t size) noexcept;
  std::size_t most_of_wire(std::size_t asked) const noexcept;

  std::span<char> room_;        // buffer that stage() was given
  std::span<const char> left_;  // the bytes of room_ that OpenSSL has not taken yet
};

}}}  // namespace conn::tls
