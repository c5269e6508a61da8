// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Includes all of conn/co/: coroutines that use connections, see docs/coroutines.md. Use them on
// the loop's thread only.
//
//   namespace co = conn::co;
//
//   co::Task<> echo(co::Stream peer) {
//     std::array<std::byte, 16384> buffer;
//     while (const co::Result got = co_await peer.read(buffer, 10s)) {
//       if (!co_await peer.write(std::span(buffer).first(got.size))) co_return;
//     }
//   }

#include "conn/co/acceptor.h"
#include "conn/co/awaitable.h"
#include "conn/co/bytes.h"
#include "conn/co/connect.h"
#include "conn/co/event.h"
#include "conn/co/first.h"
#include "conn/co/pool.h"
#include "conn/co/queue.h"
#include "conn/co/result.h"
#include "conn/co/scope.h"
#include "conn/co/semaphore.h"
#include "conn/co/sleep.h"
#include "conn/co/stream.h"
#include "conn/co/task.h"
#include "conn/co/when_all.h"
