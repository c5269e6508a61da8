// SPDX-License-Identifier: BSD-3-Clause
// Defines the versioned namespace and the symbol visibility of this library.
#pragma once

/// The inline namespace of this release. All names of ae and conn are declared in it, so that a
/// program may have an `ae` or `conn` of its own, and two releases can coexist in one process. Code
/// that writes ae::X or conn::X needs no change, but must include the header of a class instead of
/// forward-declaring the class. The number is the version in the library's soname.
#define AECONN_ABI aeconn_0_3

/// Exports a symbol from the shared library. Symbols without this mark stay hidden, because the
/// library is compiled with -fvisibility=hidden.
#define AECONN_API __attribute__((visibility("default")))
