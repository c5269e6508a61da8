#pragma once
// Catch2, whichever version the machine has: 2 (Debian 12) or 3.
#ifdef AECONN_CATCH2_V3
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
