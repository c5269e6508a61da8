#include "conn/connection_set.h"

namespace conn {

ConnectionSet& ConnectionSet::of(ae::EventLoop& loop) {
  static const char key = 0;
  std::unique_ptr<ae::LoopLocal>& slot = loop.local(&key);
  if (!slot) slot = std::make_unique<ConnectionSet>();
  return static_cast<ConnectionSet&>(*slot);
}

ConnectionSet::~ConnectionSet() {
  // From the head each time: abandoning one may destroy others (a handler that owned them).
  while (head_ != nullptr) head_->abandon();
}

void ConnectionSet::add(Connection& connection) noexcept {
  connection.set_next_ = head_;
  connection.set_link_ = &head_;
  if (head_ != nullptr) head_->set_link_ = &connection.set_next_;
  head_ = &connection;
}

void ConnectionSet::abandon(const ConnectionType& type) noexcept {
  for (;;) {
    Connection* found = head_;
    while (found != nullptr && &found->type() != &type) found = found->set_next_;
    if (found == nullptr) return;
    found->abandon();
  }
}

}  // namespace conn
