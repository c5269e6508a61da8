// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Selects the asio that the adapters use: standalone asio, or Boost's if AECONN_BOOST_ASIO is
// defined before the first adapter header is included.

#ifdef AECONN_BOOST_ASIO
#include <boost/asio.hpp>
#define AECONN_ASIO_VERSION BOOST_ASIO_VERSION
#define AECONN_ASIO_INLINE boost_based
#else
#include <asio.hpp>
#define AECONN_ASIO_VERSION ASIO_VERSION
#define AECONN_ASIO_INLINE standalone
#endif

#include "ae/abi.h"

// Source files of one program may differ in this choice, so the inline namespaces differ as well.
namespace adapters { inline namespace AECONN_ABI { namespace asio {
inline namespace AECONN_ASIO_INLINE { namespace detail {
#ifdef AECONN_BOOST_ASIO
namespace net = ::boost::asio;
using ErrorCode = ::boost::system::error_code;
#else
namespace net = ::asio;
using ErrorCode = std::error_code;
#endif
}  // namespace detail
}  // namespace AECONN_ASIO_INLINE
}}}  // namespace adapters::asio
