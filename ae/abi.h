// SPDX-License-Identifier: BSD-3-Clause
// What the linker sees of this library.
#pragma once

/// The names of ae and conn are in an inline namespace of this release: a program may have an `ae`
/// or a `conn` of its own, and two releases may meet in one process. Whoever writes ae::X or
/// conn::X need not know of it; a declaration of one of our classes in another file must be made by
/// including its header. The number is that of the soname.
#define AECONN_ABI aeconn_0_2

/// What a shared library shows of ours: all else is compiled with -fvisibility=hidden.
#define AECONN_API __attribute__((visibility("default")))
