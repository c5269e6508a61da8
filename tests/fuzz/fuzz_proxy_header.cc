// SPDX-License-Identifier: BSD-3-Clause
// Goal: any bytes are a header of the PROXY protocol, its beginning, or malformed with one reason,
// and the same however they are divided; nothing behind a header is read, and nothing above its
// largest size. A client that is read can be written and read again. Method: the first byte of the
// input says how the others are divided. Run by `make fuzz`, with the seeds in corpus/proxy_header.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "conn/kit/proxy_header.h"

namespace {

using conn::ProxyHeaderReader;
using Status = ProxyHeaderReader::Status;

void require(bool condition) {
  if (!condition) std::abort();
}

/// Reads the bytes in pieces; returns how many belong to the header.
std::size_t read(ProxyHeaderReader& reader, std::span<const std::byte> bytes, std::size_t piece) {
  std::size_t taken = 0;
  while (taken < bytes.size() && reader.status() == Status::kIncomplete) {
    const auto next = bytes.subspan(taken, std::min(piece, bytes.size() - taken));
    const std::size_t n = reader.read(next);
    require(n == next.size() || reader.status() != Status::kIncomplete);
    require(n != 0 && n <= next.size());
    taken += n;
  }
  return taken;
}

void write_and_read(const conn::SocketAddress& client) {
  for (const auto version : {conn::ProxyVersion::kV1, conn::ProxyVersion::kV2}) {
    const std::string header = conn::proxy_header(version, client, client);
    ProxyHeaderReader reader;
    const std::size_t taken = reader.read(std::as_bytes(std::span(header.data(), header.size())));
    require(taken == header.size() && reader.status() == Status::kComplete);
    require(reader.client().to_string() == client.to_string());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = data[0] + std::size_t{1};
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  ProxyHeaderReader whole, divided;
  const std::size_t taken = read(whole, bytes, std::max<std::size_t>(bytes.size(), 1));
  require(taken == read(divided, bytes, piece));
  require(whole.status() == divided.status() && whole.problem() == divided.problem());
  require(whole.client().to_string() == divided.client().to_string());
  require(whole.problem().empty() == (whole.status() != Status::kMalformed));
  require(taken <= ProxyHeaderReader::kMost);
  if (whole.status() != Status::kIncomplete) require(whole.read(bytes) == 0);
  if (whole.status() != Status::kComplete) require(whole.client().size == 0);
  if (whole.client().size != 0) write_and_read(whole.client());
  return 0;
}
