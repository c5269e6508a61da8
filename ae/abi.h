// SPDX-License-Identifier: BSD-3-Clause
// The ABI namespace and the symbol visibility of this library.
#pragma once

/// The inline namespace of this release, in which all names of ae and conn are declared. It allows
/// a program to have an `ae` or `conn` of its own, and two releases to coexist in one process. Code
/// that writes ae::X or conn::X is unaffected, but must include the header of a class instead of
/// forward-declaring it. The number is that of the soname.
#define AECONN_ABI aeconn_0_3

/// Exports a symbol from the shared library; all others are compiled with -fvisibility=hidden.
#define AECONN_API __attribute__((visibility("default")))
