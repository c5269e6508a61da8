// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// USDT probes: places that bpftrace, perf, SystemTap and gdb can stop at while the program runs
// (docs/tracing.md). Until one does, a probe is one nop: a note of the ELF file says where its
// arguments are at that place anyway. What has to be computed for one is an instruction or two, at
// places that a request does not pass. `make PROBES=no`, or a system without <sys/sdt.h> (package
// systemtap-sdt-dev), leaves them all out. For our sources alone: it is not installed.
//
// The provider is aeconn. Every probe begins with `id`, Connection::id(): 64 bits, unique in the
// process, never used twice. A layer and the connection below it have one each, so over tls+rdma
// both tell. tests/clients/probes.sh compares this list, docs/tracing.md and the built library.
//
// probe         argument    is
// accept        id          the connection stands, and it came to a listener of ours
//               connection  its address, until close
//               type        its transport, ConnectionType::name(): characters, perhaps without NUL
//               type_size   how many
// connect       id          the connection stands, and it was ours to begin
//               connection  as for accept
//               type        as for accept
//               type_size   as for accept
// read          id          read(), readv() or consume() gave bytes to the program
//               bytes       how many
// write         id          write(), writev(), commit() or send() took bytes from the program
//               bytes       how many; 0: commit(0)
// flush         id          flush() by the program, of a connection that is on a loop
// post          id          rdma: work requests went to the device, with one doorbell
//               bytes       how many of the stream leave with them; control messages do not count
//               requests    how many the device took
// window_full   id          rdma: what was written has filled a window of the peer's
//               next        bytes in its next window; 0: we wait until it offers one
// window_offered id         rdma: a window of ours is announced to the peer
//               bytes       its length
// rnr           id          rdma: the peer has no receive for the next message, as far as we know
//               unproven    messages it has not been seen to take
//               failed      0: what is written waits here; 1: the device gave up, the stream ends
// close         id          close() by the program, for the first time
//               read        Connection::bytes_read()
//               written     Connection::bytes_written()
//               error       value of Connection::error_code(); 0: it had not failed

#if !defined(AECONN_PROBES)
#if __has_include(<sys/sdt.h>)
#define AECONN_PROBES 1
#else
#define AECONN_PROBES 0
#endif
#endif

#if AECONN_PROBES
#ifndef SDT_USE_VARIADIC
#define SDT_USE_VARIADIC
#endif
#include <sys/sdt.h>

#include "ae/abi.h"
/// A probe, and its arguments as the list above has them: integers and pointers, best lvalues.
#define AECONN_PROBE(name, ...) STAP_PROBEV(aeconn, name, __VA_ARGS__)
#else
#define AECONN_PROBE(name, ...) static_cast<void>(sizeof(conn::probe_arguments(__VA_ARGS__)))
namespace conn { inline namespace AECONN_ABI {
/// Never called: arguments count as used, and are not evaluated.
template <class... Arguments>
char probe_arguments(const Arguments&...) noexcept;
}}  // namespace conn
#endif
