// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The set-up of a connecting side: names are resolved one after the other, then their addresses are
// tried in turn, each with a link of its own, until one is established or none is left. The
// connection frees it when that is known. (An accepting side has its address and needs one try:
// RdmaCarrier::accept().)
//
//   look_up_next() -> try_next_address() -> address resolved -> route resolved -> rdma_connect()
//                       ^                                                            |       |
//                       +---- on_address_failed() <---- refused, or no answer -------+       |
//                                                        SetupUser::on_set_up() <------------+
//
// Holds at all times: the phase is kResolving or kConnecting; the link has objects only for the
// address that is being tried.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/endpoint.h"
#include "conn/kit/address_choice.h"
#include "conn/kit/quota.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/deadline.h"
#include "conn/rdma/link.h"
#include "conn/rdma/mtu.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The connection that is set up.
class SetupUser {
 public:
  /// The peer has accepted, and the queue pair is ready.
  virtual void on_set_up() = 0;
  /// No address is left, or there is no memory. Ends the connection.
  virtual void on_set_up_failed(Failure why) noexcept = 0;

 protected:
  ~SetupUser() = default;
};

class Setup {
 public:
  struct Around {  ///< what it works with, all borrowed
    Link& link;
    Deadline& deadline;
    CarrierHost& host;
    CmUser& events;
    SetupUser& user;
    AddressBook& book;
  };
  /// The phase is kResolving, and the link has its settings.
  Setup(const Around& around, const Endpoint& to, ae::TimePoint until);
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  ae::TimePoint until() const noexcept { return until_; }
  ae::Duration time_left() const;
  /// When the address being tried is given up.
  ae::TimePoint address_deadline() const noexcept { return address_deadline_; }

  /// Resolves the names one after the other, and then tries their addresses in this order.
  void look_up_next();
  /// The same without the loop: waits for the names.
  void look_up_all();
  /// An rdma_cm event of the link's id.
  void on_event(const CmEvent& event);
  /// Deadline::Of::kAddress has passed.
  void on_deadline();
  /// The caller gives up before our own time-out: that may be no answer, either.
  void report_silence() const noexcept;

 private:
  void keep(Resolved resolved);
  void try_next_address();
  void choose_next_address() noexcept;
  void try_address(const SocketAddress& address);
  void on_address_failed(Failure why);
  void drop_link();
  bool try_again_after(const CmEvent& event);
  void try_again();
  void resolve_route();
  void request_connection();
  void finish_request(const CmEvent& event);
  void report(const std::error_code& why) const noexcept;

  Link& link_;
  Deadline& deadline_;
  CarrierHost& host_;
  CmUser& events_;
  SetupUser& user_;
  AddressBook& book_;
  const std::string target_;
  const std::uint16_t port_;
  const ae::TimePoint until_;
  std::vector<std::string> hosts_;  // names not yet resolved, the next one last
  std::unique_ptr<Resolution> resolution_;
  std::vector<SocketAddress> addresses_;
  std::size_t next_address_ = 0;
  ae::TimePoint address_began_{}, address_deadline_{};  // of the address being tried
  Failure last_failure_;                                // of the last address tried
  Mtu mtu_;
  bool tried_again_ = false;  // this address was retried after a refusal that may be temporary
};

}}}  // namespace conn::rdma
