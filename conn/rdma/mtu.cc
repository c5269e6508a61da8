// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/mtu.h"

#include <fmt/format.h>

#include <algorithm>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Checks the option path-mtu for a peer that sent no MTU and thus uses the one that rdma_cm has
// chosen. Throws VerbsError if the option requires a smaller one.
void refuse_lone_option(const rdma_cm_id* id, const Fabric& fabric) {
  const ibv_mtu path = mtu_of_path(id);
  if (!fabric.path_mtu || path <= *fabric.path_mtu) return;
  throw VerbsError(
      Failure{std::make_error_code(std::errc::message_size),
              fmt::format("path-mtu={}: only a peer of ours can agree on that, and this one counts "
                          "with {}",
                          bytes_of(*fabric.path_mtu), bytes_of(path))});
}

}  // namespace

void Mtu::offer(const rdma_cm_id* id, const Fabric& fabric) noexcept {
  agreed_ = {};
  stated_ = mtu_of_path(id);
  if (stated_ != 0 && fabric.path_mtu) stated_ = std::min(stated_, *fabric.path_mtu);
}

void Mtu::take_answer(const rdma_cm_id* id, const Fabric& fabric, std::uint8_t answer) {
  if (answer != 0 && stated_ != 0)
    agreed_ = std::min(static_cast<ibv_mtu>(answer), stated_);
  else
    refuse_lone_option(id, fabric);
}

void Mtu::agree(const rdma_cm_id* id, const Fabric& fabric, std::uint8_t asked, ibv_mtu here,
                const std::string& device) {
  agreed_ = stated_ = {};
  if (asked == 0) {
    const ibv_mtu path = mtu_of_path(id);
    if (path > here)
      throw VerbsError(Failure{
          std::make_error_code(std::errc::message_size),
          fmt::format("the peer's packets are of up to {} bytes, and those of {} of up to {}: give "
                      "both networks the same MTU",
                      bytes_of(path), device, bytes_of(here))});
    return refuse_lone_option(id, fabric);
  }
  agreed_ = std::min(static_cast<ibv_mtu>(asked), here);
  if (fabric.path_mtu) agreed_ = std::min(agreed_, *fabric.path_mtu);
  stated_ = agreed_;
}

void Mtu::tell(Hello& hello) const noexcept {
  hello.mtu = static_cast<std::uint8_t>(stated_);
  if (hello.mtu != 0) hello.flags |= Hello::kTellsMtu;
}

}}}  // namespace conn::rdma
