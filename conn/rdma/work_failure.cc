// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/work_failure.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

Failure describe_work_failure(ibv_wc_status status, bool was_send) {
  const auto made = [](std::errc code, std::string text) {
    return Failure{std::make_error_code(code), std::move(text)};
  };
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return made(std::errc::timed_out,
                  "the peer does not answer any more (transport retries "
                  "exhausted)");
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return made(std::errc::timed_out, "the peer posts no receives any more");
    case IBV_WC_REM_ACCESS_ERR:
      return made(std::errc::protocol_error,
                  "the peer's device refused our write: the window it offered is not writable");
    case IBV_WC_WR_FLUSH_ERR:
      return made(std::errc::connection_reset, "the connection was reset");
    default:
      return made(std::errc::io_error, fmt::format("{} failed: {}", was_send ? "send" : "receive",
                                                   ibv_wc_status_str(status)));
  }
}

bool may_be_the_path(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_LOC_QP_OP_ERR:  // soft-RoCE's status if there is no link or no route
    case IBV_WC_FATAL_ERR:
    case IBV_WC_GENERAL_ERR:
      return true;
    default:
      return false;
  }
}

bool shows_inability(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_FATAL_ERR:
    case IBV_WC_GENERAL_ERR:
      return true;
    default:
      return false;
  }
}

}}}  // namespace conn::rdma
