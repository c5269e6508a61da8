// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The set-up of an outgoing connection. Host names are resolved one after the other; then their
// addresses are tried in turn, each with new objects in the link, until a connection is established
// or no address is left. The connection destroys this object afterwards. (For the accepting side
// see conn/rdma/acceptance.h.)
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

/// Interface through which Setup calls the connection that is being set up.
class SetupUser {
 public:
  /// Called when the peer has accepted the connection and the queue pair is ready to send and
  /// receive. May throw only while the phase is still kConnecting: the exception then counts as a
  /// failure of the address, and the next one is tried.
  virtual void on_set_up() = 0;
  /// Called when no address is left to try, or memory ran out. The implementation must end the
  /// connection.
  virtual void on_set_up_failed(Failure why) noexcept = 0;

 protected:
  ~SetupUser() = default;
};

/// Interface for what a connection adds to the private data of rdma_cm when it is set up, besides
/// the usual greeting (Hello), and what it takes from the peer's. PathRecovery implements it.
class HelloExchange {
 public:
  virtual ~HelloExchange() = default;
  /// Resets the protocol state of the byte stream for another attempt to connect.
  virtual void renew_stream() = 0;
  /// Returns the private data of the connection request. `hello`: the greeting that it must
  /// contain. Throws VerbsError if the device does not support an option of the connection.
  virtual PrivateData request(Hello hello) = 0;
  /// Handles the private data of the peer's answer: passes the peer's greeting (Hello) to the
  /// stream and returns it; no value: the peer sent none. Throws VerbsError if the answer does not
  /// fit the request.
  virtual std::optional<Hello> take_answer(std::span<const std::byte> data) = 0;
};

class Setup {
 public:
  struct Around {  ///< references to objects of the connection that Setup uses
    Link& link;
    Deadline& deadline;
    CarrierHost& host;
    SetupUser& user;
    HelloExchange* hellos;  ///< null: only the usual greeting (Hello) is exchanged
    AddressBook& book;
  };
  /// Creates the set-up of a connection to `to`; look_up_next() or look_up_all() starts it. The
  /// phase must be kResolving, and the link must have its settings. `until`: time at which the
  /// whole set-up is given up. `first`: index of the address to try first, modulo the number of
  /// addresses; then those after it are tried, then those before it.
  Setup(const Around& around, const Endpoint& to, ae::TimePoint until, std::size_t first);
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  ae::TimePoint until() const noexcept { return until_; }
  ae::Duration time_left() const;
  /// Returns the number of addresses of those names that are resolved already.
  std::size_t addresses() const noexcept { return addresses_.size(); }
  /// Returns the index, from 0, of the address that is being tried or has answered, in the order in
  /// which the names were resolved. (Not exact if the option `spread` chooses another order.)
  std::uint32_t address() const noexcept;
  /// Call when the set-up of a new network path has failed. Returns the final reason for which the
  /// peer refuses to resume the connection's session: kOver or kGap if any address stated it (only
  /// a peer that knows the session does); kUnknown if each address of each name stated kUnknown;
  /// otherwise kNone: an address that does not answer now may know the session.
  Refused refused() const noexcept {
    return final_ == Refused::kNone && all_of(unknown_) ? Refused::kUnknown : final_;
  }
  /// Call when the set-up has failed. Returns true if each address of each name has refused the
  /// request: nobody listens there, or the program there refuses to resume the session.
  bool nobody() const noexcept { return all_of(nobody_); }
  /// Returns the time at which the attempt with the current address, or the look-up of names, is
  /// given up.
  ae::TimePoint address_deadline() const noexcept { return address_deadline_; }

  /// Starts to resolve the next name. When all names are resolved, tries their addresses, in the
  /// order of the names unless the option `spread` asks for another order.
  void look_up_next();
  /// Does what look_up_next() does, but blocks until all names are resolved or the time `limit` has
  /// come, without running the event loop.
  void look_up_all(ae::TimePoint limit);
  /// Handles an rdma_cm event of the connection that is being set up.
  void on_event(const CmEvent& event);
  /// Call when the deadline Deadline::Of::kAddress has passed, because an address or the name
  /// service has not answered in time: tries the next address.
  void on_deadline();
  /// Call when the device or port of the current address has failed. The next address is tried in
  /// the loop's next iteration, because the caller still uses the objects of the current one.
  /// Moves from `why`. Returns false, and leaves `why`, if there is no memory for the timer.
  [[nodiscard]] bool give_up_address(Failure& why) noexcept;
  /// Call when the user ends the attempt to connect before its deadline. If the current address has
  /// not answered for AddressBook::kSilence, records in the AddressBook that it is silent.
  void report_silence() const noexcept;

 private:
  void keep(Resolved resolved);
  void try_first_address();
  void try_next_address();
  void choose_next_address() noexcept;
  void try_address(const SocketAddress& address);
  void on_address_failed(Failure why);
  void record(Failure why);
  bool all_of(std::size_t addresses) const noexcept {
    return resolved_all_ && addresses != 0 && addresses == addresses_.size();
  }
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
  // Host names that are not resolved yet, in reverse order, so that the last element is resolved
  // next.
  std::vector<std::string> hosts_;
  std::unique_ptr<Resolution> resolution_;
  std::vector<SocketAddress> addresses_;
  const std::size_t first_;
  std::size_t next_address_ = 0;
  // Time at which the attempt with the current address began, and time at which it is given up.
  ae::TimePoint address_began_{}, address_deadline_{};
  Failure given_up_;  // the argument of give_up_address() for the current address; empty: none
  // Failure of the name or address that was tried last; empty if none has failed.
  Failure last_failure_;
  Mtu mtu_;
  Refused refused_ = Refused::kNone;  // how the address that was tried last rejected the request
  Refused final_ = Refused::kNone;    // kOver or kGap if an address refused for this reason
  bool resolved_all_ = true;          // false: the look-up of a name has failed
  // unknown_: number of addresses at which the session is unknown (Refused::kUnknown). nobody_:
  // number of addresses at which nobody listens, or the request to resume was refused.
  std::size_t unknown_ = 0, nobody_ = 0;
  // True if the current address is being tried for the second time, after a failure that may have
  // been temporary.
  bool tried_again_ = false;
  // False after a queue pair for the current address could not bind a key: the next one must not
  // bind keys.
  bool may_bind_ = true;
};

}}}  // namespace conn::rdma
