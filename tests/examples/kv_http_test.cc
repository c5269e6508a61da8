// SPDX-License-Identifier: BSD-3-Clause
// The head of an HTTP request, arriving in pieces of all sizes.

#include "examples/kv_server/http_request.h"

#include <random>

#include "tests/support/catch.h"

using kv::HttpRequest;
using Result = HttpRequest::Result;

namespace {

/// The parser's result for `input`, in pieces of `size` bytes.
std::pair<Result, HttpRequest> feed(std::string_view input, std::size_t size) {
  HttpRequest request;
  Result result = Result::kMore;
  for (; !input.empty(); input.remove_prefix(std::min(size, input.size())))
    result = request.feed(input.substr(0, size));
  return {result, request};
}

void expect(std::string_view input, Result wanted, std::string_view path = {}) {
  for (std::size_t size = 1; size <= input.size(); ++size) {
    CAPTURE(input, size);
    const auto [result, request] = feed(input, size);
    REQUIRE(result == wanted);
    if (result == Result::kDone) REQUIRE(request.path() == path);
  }
}

}  // namespace

TEST_CASE("kv http: requests of both versions", "[kv][http]") {
  expect("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Result::kDone, "/metrics");
  expect("GET /metrics HTTP/1.0\r\n\r\n", Result::kDone, "/metrics");
  expect("\r\nGET / HTTP/1.0\nAccept: */*\n\n", Result::kDone, "/");
  expect("GET /metrics?x=/y HTTP/1.1\r\nhOST:\r\nX: \t a:b\r\n\r\nbody", Result::kDone, "/metrics");
  expect("GET http://a:1/metrics HTTP/1.1\r\nHost: a:1\r\n\r\n", Result::kDone, "/metrics");
  expect("GET http://a HTTP/1.0\r\n\r\n", Result::kDone, "/");
  expect("GET http://a?x=/y HTTP/1.0\r\n\r\n", Result::kDone, "/");
  REQUIRE(feed("DELETE / HTTP/1.0\r\n\r\n", 1).second.method() == "DELETE");
}

TEST_CASE("kv http: what has no end yet is waited for", "[kv][http]") {
  expect("GET /metrics HTTP/1.1\r\nHost: a\r\n", Result::kMore);
  expect("\r\n\r\n\r\n", Result::kMore);
  expect("*3\r", Result::kMore);
}

TEST_CASE("kv http: what is no HTTP is found at its first line", "[kv][http]") {
  for (const char* line :
       {"PING", "*1", "GET /metrics", "GET  HTTP/1.1", "GET /a b HTTP/1.1", "GET / HTTP/2.0",
        "GET / HTTP/1.12", "GET ?x HTTP/1.1", "GET / http/1.1", " GET / HTTP/1.1",
        "G\x01T / HTTP/1.1", "GET /\r/ HTTP/1.1", "G(T / HTTP/1.1", "GET / HTTP/1.1 "})
    expect(std::string(line) + "\r\n", Result::kBad);
  using namespace std::string_view_literals;
  expect("GET /\0 HTTP/1.1\r\n"sv, Result::kBad);
  expect("\x16\x03\x01\x02\x00\x01\n"sv, Result::kBad);
}

TEST_CASE("kv http: mistakes in the fields", "[kv][http]") {
  const std::string line = "GET / HTTP/1.1\r\n";
  expect(line + "\r\n", Result::kBad);  // no Host
  expect(line + "Host: a\r\nHost: a\r\n\r\n", Result::kBad);
  for (const char* field : {"Host", "Host : a", ": a", " folded", "X\x02: a", "X: \x7f"})
    expect(line + field + "\r\n", Result::kBad);
}

TEST_CASE("kv http: a head has an end", "[kv][http][limits]") {
  const std::string begin = "GET / HTTP/1.0\r\nX: ";
  const std::string fits = begin + std::string(HttpRequest::kMost - begin.size() - 4, 'x');
  REQUIRE(feed(fits + "\r\n\r\n", 100).first == Result::kDone);
  REQUIRE(feed(fits + "x\r\n\r\n", 100).first == Result::kTooLarge);
  REQUIRE(feed(std::string(HttpRequest::kMost + 1, 'x'), 1).first == Result::kTooLarge);
  REQUIRE(feed(std::string(HttpRequest::kMost + 2, '\n'), 7).first == Result::kTooLarge);
}

TEST_CASE("kv http: any bytes in any pieces mean the same", "[kv][http][random]") {
  const auto seed = GENERATE(take(3, random(0u, 4000000000u)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::string valid = "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: b\r\n\r\n";
  for (int i = 0; i < 2000; ++i) {
    std::string input = valid;
    for (auto changes = random() % 4; changes > 0; --changes)
      input[random() % input.size()] = static_cast<char>(random());
    if (random() % 4 == 0) input.erase(random() % input.size(), 1);
    const auto [whole, request] = feed(input, input.size());
    const auto [cut, same] = feed(input, 1 + random() % 9);
    CAPTURE(input);
    REQUIRE(whole == cut);
    REQUIRE(request.path() == same.path());
    REQUIRE(request.method() == same.method());
  }
}

TEST_CASE("kv http: an answer", "[kv][http]") {
  REQUIRE(kv::http_answer(405, "text/plain", "abc", false, "Allow: GET\r\n") ==
          "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
          "Connection: close\r\nAllow: GET\r\n\r\n");
  REQUIRE(kv::http_answer(200, "a", "b").ends_with("Connection: close\r\n\r\nb"));
}
