#pragma once
// For the tests of kv-server on several loops: a server with its threads, and blocking clients.

#include <string>
#include <vector>

#include "ae/loop_group.h"
#include "conn/transports/transports.h"
#include "examples/kv_server/resp_reply_format.h"
