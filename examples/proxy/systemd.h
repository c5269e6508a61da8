#pragma once
// What systemd asks of a service: sockets that it opened (sd_listen_fds(3)) and the word that the
// service is ready, or about to end (sd_notify(3)). Both are environment variables and datagrams,
// so no library is needed.

#include <string_view>

namespace proxy {

/// How many descriptors were handed over, from 3 on; takes the variables out of the environment.
int take_listening_descriptors();
/// "READY=1", "STOPPING=1". Nothing where nobody listens.
void notify(std::string_view state) noexcept;

}  // namespace proxy
