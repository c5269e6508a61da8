// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// USDT probes: locations where bpftrace, perf, SystemTap and gdb can attach to the running program
// (docs/tracing.md). A probe without a tracer is one nop; an ELF note describes where its arguments
// are, so they need no extra code. Arguments that must be computed cost an instruction or two, and
// only outside the path of a request. `make PROBES=no`, or a system without <sys/sdt.h> (package
// systemtap-sdt-dev), omits all probes. For the library's own sources; the header is not installed.
//
// The provider is aeconn. The first argument of every probe is `id`, Connection::id(): 64 bits,
// unique in the process and never reused. A layer and the connection below it have different ids,
// so with tls+rdma both report. tests/clients/probes.sh compares this list, docs/tracing.md and the
// built library.
//
// probe         argument    is
// accept        id          a connection is established that a listener of this process accepted
//               connection  its address, valid until close
//               type        its transport, ConnectionType::name(): characters, maybe not terminated
//               type_size   number of characters
// connect       id          a connection is established that this process initiated
//               connection  as for accept
//               type        as for accept
//               type_size   as for accept
// read          id          read(), readv() or consume() returned bytes to the program
//               bytes       number of bytes
// write         id          write(), writev(), commit() or send() accepted bytes from the program
//               bytes       number of bytes; 0: commit(0)
// flush         id          the program called flush() on a connection that is on a loop
// post          id          rdma: work requests were posted to the device, with one doorbell
//               bytes       bytes of the stream in them, without control messages
//               requests    number of requests that the device accepted
// window_full   id          rdma: written data has filled a window (memory) of the peer
//               next        bytes in its next window; 0: none, wait until the peer offers one
// window_offered id         rdma: a window was announced to the peer
//               bytes       its length
// rnr           id          rdma: the peer has no receive for the next message, as far as known
//               unproven    messages not known to have been received by the peer
//               failed      0: output waits here; 1: the device gave up and the stream ends
// close         id          the program called close(), for the first time
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
/// Defines a tracing probe with the arguments listed above: integers and pointers, preferably
/// lvalues.
#define AECONN_PROBE(name, ...) STAP_PROBEV(aeconn, name, __VA_ARGS__)
#else
#define AECONN_PROBE(name, ...) static_cast<void>(sizeof(conn::probe_arguments(__VA_ARGS__)))
namespace conn { inline namespace AECONN_ABI {
/// A function that is never called. It lets the compiler count the arguments of a disabled probe as
/// used, without evaluating them.
template <class... Arguments>
char probe_arguments(const Arguments&...) noexcept;
}}  // namespace conn
#endif
