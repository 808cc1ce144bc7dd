// The head of an HTTP request, read from untrusted bytes.
// Only what the server answers: GET and HEAD without a body. Pure: no socket, no clock, so the same code serves the server and the fuzzer.
// Threads: values, any. Failure: a status for the answer (400, 403, 405, 413, 505), never an exception.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace cohort::observe {

struct HttpRequest {
  bool head_only = false;  // HEAD: the answer has the same header and no body
  std::string path;        // decoded, starts with "/"
  std::string query;       // what follows the first "?", as it came
};

// Where the head ends (after its empty line), or nullopt while it is incomplete. Lines may end in \r\n or \n.
std::optional<std::size_t> head_end(std::string_view bytes);

struct HttpHead {
  int status = 200;  // else what to answer instead
  HttpRequest request;
};
// head: up to and with its empty line. A Host that is no name of this machine's loopback gets 403, so that a web page elsewhere cannot
// read a job's figures through the visitor's browser (DNS rebinding).
HttpHead parse_head(std::string_view head);

bool is_loopback_host(std::string_view host);  // the Host field: localhost, 127.x.y.z or [::1], with or without a port

}  // namespace cohort::observe
