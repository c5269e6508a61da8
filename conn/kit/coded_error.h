// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// CodedError: the name that an Error with a code had, for programs that use it.

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/kit/mistake.h"

namespace conn { inline namespace AECONN_ABI {

/// The same as Error, whose code() may be empty.
using CodedError = Error;

}}  // namespace conn
