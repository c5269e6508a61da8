// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The set-up of an outgoing connection. Names are resolved one after the other; then their
// addresses are tried in turn, each with new objects in the link, until a connection is established
// or no address is left. The connection destroys this object afterwards. (An accepting side knows
// its address and makes only one attempt: conn/rdma/acceptance.h.)
//
//   look_up_next() -> try_next_address() -> address resolved -> route resolved -> rdma_connect()
//                       ^                                                            |       |
//                       +---- on_address_failed() <---- refused, or no answer -------+       |
//                                                        SetupUser::on_set_up() <------------+
//
// Invariants: the phase is kResolving or kConnecting; the link holds objects only for the address
// that is being tried.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
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
#include "conn/rdma/private_data.h"
#include "conn/rdma/protocol/resume_message.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Interface of the connection that is being set up, as Setup calls it.
class SetupUser {
 public:
  /// Called when the peer has accepted the connection and the queue pair is ready to send and
  /// receive.
  virtual void on_set_up() = 0;
  /// Called when no address is left to try, or memory ran out. The implementation must end the
  /// connection.
  virtual void on_set_up_failed(Failure why) noexcept = 0;

 protected:
  ~SetupUser() = default;
};

/// What the two ends tell each other when a path is set up, for a connection that states more than
/// what its stream and path do.
class HelloExchange {
 public:
  virtual ~HelloExchange() = default;
  /// Prepares the stream for another attempt.
  virtual void renew_stream() = 0;
  /// Returns what the connection request says. `hello`: what our stream and path state. Throws
  /// VerbsError if the device cannot do what the connection's options ask for.
  virtual PrivateData request(Hello hello) = 0;
  /// Takes the private data of the peer's answer, and gives the stream what it states; no value:
  /// the peer sent no hello. Throws VerbsError if the answer does not fit the request.
  virtual std::optional<Hello> take_answer(std::span<const std::byte> data) = 0;
};

class Setup {
 public:
  struct Around {  ///< objects that Setup works with; Setup owns none of them
    Link& link;
    Deadline& deadline;
    CarrierHost& host;
    SetupUser& user;
    HelloExchange* hellos;  ///< null: only the hellos of the stream and the path are exchanged
    AddressBook& book;
  };
  /// Requires that the phase is kResolving and that the link has its settings. At time `until` the
  /// whole set-up is given up. Of all addresses, number `first` (from 0; beyond the last one
  /// counting begins anew) is tried first, then those after it and those before it.
  Setup(const Around& around, const Endpoint& to, ae::TimePoint until, std::size_t first);
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  ae::TimePoint until() const noexcept { return until_; }
  ae::Duration time_left() const;
  /// Number of addresses that the names have, as far as they are resolved.
  std::size_t addresses() const noexcept { return addresses_.size(); }
  /// Number of the address that is tried or has answered, among addresses(), in the names' order:
  /// only with an order of option `spread` other than theirs it is another one's.
  std::uint32_t address() const noexcept;
  /// Why the address that was tried last rejected a request for a session; kNone if it did not.
  Refused refused() const noexcept { return refused_; }
  /// Returns the time at which the attempt with the current address is given up, or the look-up of
  /// names.
  ae::TimePoint address_deadline() const noexcept { return address_deadline_; }

  /// Starts to resolve the next name. Once all are resolved, tries their addresses, in the order of
  /// the names unless option `spread` asks for another.
  void look_up_next();
  /// Does the same as look_up_next(), but blocks until all names are resolved or `limit`, without
  /// running the event loop.
  void look_up_all(ae::TimePoint limit);
  /// Handles an event that rdma_cm reports for the rdma_cm id of the link.
  void on_event(const CmEvent& event);
  /// Call when the deadline Deadline::Of::kAddress has passed: the address that is being tried, or
  /// the name service, has not answered in time.
  void on_deadline();
  /// Call when the user gives up the attempt to connect before the deadline of the set-up. If the
  /// current address has been silent for long enough, records it as one that does not answer.
  void report_silence() const noexcept;

 private:
  void keep(Resolved resolved);
  void try_first_address();
  void try_next_address();
  void choose_next_address() noexcept;
  void try_address(const SocketAddress& address);
  void on_address_failed(Failure why);
  void drop_link();
  std::optional<Hello> take_answer(std::span<const std::byte> data);
  bool try_again_after(const CmEvent& event);
  void try_again();
  void resolve_route();
  void request_connection();
  void finish_request(const CmEvent& event);
  void report(const std::error_code& why) const noexcept;

  Link& link_;
  Deadline& deadline_;
  CarrierHost& host_;
  SetupUser& user_;
  HelloExchange* const hellos_;
  AddressBook& book_;
  const std::string target_;
  const std::uint16_t port_;
  const ae::TimePoint until_;
  // Host names that are not resolved yet, in reverse order: the last element is resolved next.
  std::vector<std::string> hosts_;
  std::unique_ptr<Resolution> resolution_;
  std::vector<SocketAddress> addresses_;
  const std::size_t first_;
  std::size_t next_address_ = 0;
  // Times at which the attempt to connect to the current address began, and at which it is given
  // up.
  ae::TimePoint address_began_{}, address_deadline_{};
  // Why the name or address that was tried last failed; empty if none has failed.
  Failure last_failure_;
  Mtu mtu_;
  Refused refused_ = Refused::kNone;
  // True if the current address is being tried for the second time, after a refusal that may have
  // been temporary.
  bool tried_again_ = false;
  // False once a queue pair for the present address could not bind a key: the next one binds none.
  bool may_bind_ = true;
};

}}}  // namespace conn::rdma
