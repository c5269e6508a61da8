// SPDX-License-Identifier: BSD-3-Clause
// hiredis (1.0 or later) over any URL: sends one command through an asynchronous context and prints
// the reply. All but the line that connects is the normal use of hiredis.
//
//   g++ ... hiredis_client.cc ... -lhiredis
//   ./hiredis_client unix:///run/redis.sock SET greeting hello
#include <cstddef>
#include <iostream>
#include <stdexcept>
#include <string>

#include "adapters/hiredis.h"
#include "ae/libev_loop.h"
#include "conn/transports/transports.h"

struct Answer {
  ae::EventLoop& loop;
  std::string text, failure = "no reply";
};

/// Called once: with the reply, or with null if there is none, e.g. without a connection.
void on_reply(redisAsyncContext* context, void* reply_of_hiredis, void* answer_of_main) {
  Answer& answer = *static_cast<Answer*>(answer_of_main);
  const auto* reply = static_cast<const redisReply*>(reply_of_hiredis);
  if (reply == nullptr) {
    if (context->err != 0) answer.failure = context->errstr;
    return answer.loop.stop();
  }
  answer.failure.clear();
  switch (reply->type) {
    case REDIS_REPLY_ERROR:
      answer.failure.assign(reply->str, reply->len);
      break;
    case REDIS_REPLY_INTEGER:
      answer.text = std::to_string(reply->integer);
      break;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
      answer.text.assign(reply->str, reply->len);
      break;
    case REDIS_REPLY_NIL:
      answer.text = "(nil)";
      break;
    default:
      answer.text = "(" + std::to_string(reply->elements) + " elements)";
  }
  redisAsyncDisconnect(context);
  answer.loop.stop();
}

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("usage: hiredis_client URL COMMAND...");
  const conn::Registry registry = conn::all_transports();  // must outlive the loop
  ae::LibevLoop loop;
  Answer answer{loop, {}};
  redisAsyncContext* context = adapters::hiredis::connect_async(registry, loop, argv[1]);
  if (context == nullptr) throw std::bad_alloc();
  if (context->err != 0) {  // an invalid URL; other failures are passed to the callback
    const std::string why = context->errstr;
    redisAsyncFree(context);
    throw std::runtime_error(why);
  }
  redisAsyncCommandArgv(context, on_reply, &answer, argc - 2, const_cast<const char**>(argv + 2),
                        nullptr);
  loop.run();  // connects, sends, and runs the callback
  if (!answer.failure.empty()) throw std::runtime_error(answer.failure);
  std::cout << answer.text << '\n';
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
