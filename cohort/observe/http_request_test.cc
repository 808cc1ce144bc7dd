#include "cohort/observe/http_request.h"

#include <gtest/gtest.h>

namespace cohort::observe {
namespace {

int status_of(std::string_view head) { return parse_head(head).status; }

TEST(HttpRequest, ReadsMethodPathAndQuery) {
  const auto head = parse_head("GET /a%20b/metrics?x=1&y=%31 HTTP/1.1\r\nHost: localhost:8080\r\nAccept: */*\r\n\r\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_FALSE(head.request.head_only);
  EXPECT_EQ(head.request.path, "/a b/metrics");
  EXPECT_EQ(head.request.query, "x=1&y=%31");
  EXPECT_TRUE(parse_head("HEAD / HTTP/1.0\n\n").request.head_only);
}

TEST(HttpRequest, TheHeadEndsAtItsEmptyLine) {
  EXPECT_EQ(head_end("GET / HTTP/1.1\r\nHost: x\r\n\r\nmore"), 27U);
  EXPECT_EQ(head_end("a\n\nb"), 3U);
  EXPECT_EQ(head_end("a\r\n\r"), std::nullopt);
  EXPECT_EQ(head_end(""), std::nullopt);
}

TEST(HttpRequest, EachFaultHasItsStatus) {
  const std::string host = "Host: localhost\r\n";
  const auto with = [&](std::string_view line, std::string_view more = "") {
    return std::string(line) + "\r\n" + host + std::string(more) + "\r\n";
  };
  EXPECT_EQ(status_of(with("POST / HTTP/1.1")), 405);
  EXPECT_EQ(status_of(with("GET / HTTP/2.0")), 505);
  EXPECT_EQ(status_of(with("GET / FTP/1.1")), 400);
  EXPECT_EQ(status_of(with("GET /")), 400);
  EXPECT_EQ(status_of(with("GET http://x/ HTTP/1.1")), 400);
  EXPECT_EQ(status_of(with("GET /%zz HTTP/1.1")), 400);
  EXPECT_EQ(status_of(with("GET /%00 HTTP/1.1")), 400);
  EXPECT_EQ(status_of(with("GET /a b HTTP/1.1")), 400);
  EXPECT_EQ(status_of(with("GET / HTTP/1.1", "no colon\r\n")), 400);
  EXPECT_EQ(status_of(with("GET / HTTP/1.1", " folded: x\r\n")), 400);
  EXPECT_EQ(status_of(with("GET / HTTP/1.1", "A: b\x01\r\n")), 400);
  EXPECT_EQ(status_of(with("GET / HTTP/1.1", host)), 400) << "two hosts";
  EXPECT_EQ(status_of(with("GET / HTTP/1.1", "Content-Length: 5\r\n")), 413);
  EXPECT_EQ(status_of(with("GET / HTTP/1.1", "Transfer-Encoding: chunked\r\n")), 413);
  EXPECT_EQ(status_of(with("GET / HTTP/1.1", "Content-Length: 0\r\n")), 200);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 400) << "1.1 needs a Host";
  EXPECT_EQ(status_of(""), 400);
}

TEST(HttpRequest, OnlyNamesOfTheLoopbackAreAnswered) {
  for (const char* host : {"localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:40123", "127.1.2.3", "[::1]", "[::1]:9"})
    EXPECT_TRUE(is_loopback_host(host)) << host;
  for (const char* host : {"", "evil.example", "127.evil.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", "[::2]",
                           "localhost:80:80", "localhost:x"})
    EXPECT_FALSE(is_loopback_host(host)) << host;
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 403);
}

}  // namespace
}  // namespace cohort::observe
