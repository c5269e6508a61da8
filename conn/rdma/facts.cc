// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/facts.h"

#include <fmt/format.h>

#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

std::string RdmaFacts::path() const {
  const Stream& stream = link_.stream;
  link_.read_route();
  return link_.path.line(link_.settings().fabric) +
         fmt::format(" window {} peer {}", size_text(stream.inbound().window_length()),
                     stream.peer().kind());
}

std::vector<std::pair<std::string, std::string>> RdmaFacts::info() const {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  const DeviceContext* const context = link_.context();
  const Domain* const domain = link_.domain();
  const Stream& stream = link_.stream;
  const Sender& sender = link_.sender;
  const bool own_receives = domain != nullptr && link_.receives() != domain->shared_receives();
  std::vector<std::pair<std::string, std::string>> facts{
      {"phase", to_string(link_.stage.phase())},
      {"device", context != nullptr ? context->name() : ""},
      {"isolation", domain == nullptr     ? ""
                    : domain->bind_keys() ? "window"
                    : domain->shared()    ? "none"
                                          : "connection"},
      {"inline", text(sender.inline_limit())},
      {"receives", own_receives ? text(link_.receives()->depth()) : "shared"},
      {"peer-is-aeconn", stream.peer().is_aeconn() ? "yes" : "no"},
      {"window", text(stream.inbound().window_length())},
      {"windows", text(stream.inbound().windows_wanted())},
      {"peer-window", text(stream.outbound().peer_windows().current().length)},
      {"peer-window-left", text(stream.outbound().peer_windows().left())},
      {"pinned", text(stream.inbound().pinned_bytes())},
      {"unread", text(stream.inbound().unread_bytes())},
      {"unsent", text(sender.queue().staged())},
      {"unconfirmed", text(sender.queue().in_flight())},
      {"unproven-messages", text(stream.outbound().proof().unproven())},
      {"send-buffer", text(sender.buffer().size())},
      {"send-queue", text(sender.requests().count())}};
  const Session* const session = recovery_ == nullptr ? nullptr : recovery_->session();
  facts.emplace_back("resume", session == nullptr ? "no" : "yes");
  if (session != nullptr) {
    const bool lost = recovery_->keeps_unsent() && recovery_->lost();
    facts.emplace_back("path-state", lost ? "lost" : "up");
    facts.emplace_back("resumes", text(session->resumes()));
  }
  const Route& way = link_.read_route();
  link_.path.add_facts(facts);
  ibv_qp* const qp = link_.queue_pair();
  if (std::string ece = way.known && qp != nullptr && !link_.inherited() ? ece_text(qp) : "";
      !ece.empty())
    facts.emplace_back("ece", std::move(ece));
  return facts;
}

}}}  // namespace conn::rdma
