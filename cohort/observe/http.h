// A small HTTP server for people and scrapers on this machine: GET and HEAD, one answer a connection, on the loopback interface.
//   HttpServer server({{"/metrics", [&](const HttpRequest&) { return HttpResponse{.body = registry.text()}; }}});
//   log_info("metrics at {}", server.url("/metrics"));
// Every number below is a hard cap, so that no client can block it: a slow or silent client is disconnected after `patience`. When the most
// connections are open, further clients wait in the kernel's queue; after a refused request accepting pauses for 10 ms. Port 0 lets the
// system choose, so two jobs never collide. Threads: one of its own, sleeping in poll(2) when no client asks; handlers run on it, so they
// must be quick and must not block. Failure: the constructor Kind::system naming the port; afterwards none (a handler that throws is
// answered with 500 and logged). The destructor ends within a moment, whatever clients do.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "cohort/base/bytes.h"
#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/observe/http_request.h"

namespace cohort::observe {

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;
using HttpRoutes = std::map<std::string, HttpHandler, std::less<>>;  // by whole path; "/" answers only "/"

struct HttpOptions {
  std::uint16_t port = 0;
  std::size_t head_bytes = 8_KiB;
  std::size_t connections = 64;
  Seconds patience{10};  // for a request to arrive, and again for its answer to be taken
};

// The answer's bytes. Browsers are told to guess no types, keep no copy, and show it in no frame.
std::string encode_response(const HttpResponse& response, bool head_only);

class HttpServer {
 public:
  explicit HttpServer(HttpRoutes routes, HttpOptions options = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const { return port_; }
  std::string url(std::string_view path = "/") const;  // "http://127.0.0.1:40123/metrics"

 private:
  struct Connection;
  class Loop;

  Fd listener_;
  Fd stop_;  // eventfd
  std::uint16_t port_ = 0;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace cohort::observe
