#include "cohort/observe/http.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>

#include <optional>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/failure_of.h"
#include "cohort/base/slowdown.h"
#include "cohort/net/socket/socket.h"

namespace cohort::observe {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr Seconds kSoon{5};  // far beyond what any of this takes

// A client that sends raw bytes, so that it can also send malformed ones.
class Client {
 public:
  explicit Client(const HttpServer& server) : fd_(net::open_socket(AF_INET)) {
    const auto at = net::SocketAddress::of({"127.0.0.1", server.port()});
    if (::connect(fd_.get(), at.get(), at.length) != 0 && errno != EINPROGRESS) throw_system("connect");
    EXPECT_TRUE(net::wait_ready(fd_.get(), POLLOUT, Deadline::in(kSoon)));
  }
  Client& say(std::string_view text) {
    const iovec part{const_cast<char*>(text.data()), text.size()};
    EXPECT_EQ(net::write_some(fd_.get(), std::span(&part, 1)).bytes, text.size());
    return *this;
  }
  std::string receive() {  // until the server closes
    std::string out;
    char block[65536];
    const auto deadline = Deadline::in(kSoon);
    while (net::wait_ready(fd_.get(), POLLIN, deadline)) {
      const auto got = net::read_some(fd_.get(), std::as_writable_bytes(std::span(block)));
      if (got.state == net::IoState::closed) {
        EXPECT_EQ(got.problem, 0) << "reset, not closed";
        return out;
      }
      out.append(block, got.bytes);
    }
    ADD_FAILURE() << "the server did not close; so far: " << out;
    return out;
  }

 private:
  Fd fd_;
};

HttpRoutes routes() {
  return {{"/", [](const HttpRequest&) { return HttpResponse{.body = "hello\n"}; }},
          {"/echo", [](const HttpRequest& r) { return HttpResponse{.type = "text/x-query", .body = r.query}; }},
          {"/big", [](const HttpRequest&) { return HttpResponse{.body = std::string(4_MiB, 'x')}; }},
          {"/throws", [](const HttpRequest&) -> HttpResponse { throw_failure(Kind::bug, "on purpose"); }}};
}

std::string get(const HttpServer& server, std::string_view path, std::string_view method = "GET") {
  return Client(server).say(fmt::format("{} {} HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", method, path, server.port())).receive();
}

TEST(Http, AnswersByPathOnAPortTheSystemChose) {
  const HttpServer one(routes());
  const HttpServer two(routes());
  EXPECT_NE(one.port(), two.port());
  EXPECT_EQ(one.url("/x"), fmt::format("http://127.0.0.1:{}/x", one.port()));
  const auto said = get(one, "/");
  EXPECT_THAT(said, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(said, HasSubstr("\r\nContent-Length: 6\r\n"));
  EXPECT_THAT(said, testing::EndsWith("\r\n\r\nhello\n"));
  EXPECT_THAT(get(one, "/echo?a=b"), HasSubstr("Content-Type: text/x-query\r\n"));
  EXPECT_THAT(get(one, "/nothing"), StartsWith("HTTP/1.1 404"));
}

TEST(Http, HeadHasTheLengthButNoBody) {
  const HttpServer server(routes());
  const auto said = get(server, "/", "HEAD");
  EXPECT_THAT(said, HasSubstr("Content-Length: 6\r\n"));
  EXPECT_THAT(said, testing::EndsWith("\r\n\r\n"));
}

TEST(Http, LargeAnswersArriveWhole) {
  const HttpServer server(routes());
  EXPECT_GT(get(server, "/big").size(), 4_MiB);
}

TEST(Http, ARequestMayComeByteByByte) {
  const HttpServer server(routes());
  Client client(server);
  for (const char c : std::string_view("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")) client.say({&c, 1});
  EXPECT_THAT(client.receive(), StartsWith("HTTP/1.1 200"));
}

TEST(Http, RefusesOtherMethodsBodiesAndForeignHosts) {
  const HttpServer server(routes());
  const auto post = get(server, "/", "POST");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(post, HasSubstr("Allow: GET, HEAD\r\n"));
  EXPECT_THAT(Client(server).say("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").receive(), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Client(server).say("\x16\x03\x01 tls\r\n\r\n").receive(), StartsWith("HTTP/1.1 400"));
}

TEST(Http, AHandlerThatThrowsIsAnAnswerAndNotAnEnd) {
  const HttpServer server(routes());
  const auto said = get(server, "/throws");
  EXPECT_THAT(said, StartsWith("HTTP/1.1 500"));
  EXPECT_THAT(said, Not(HasSubstr("on purpose"))) << "the reason goes to the log, not to the client";
  EXPECT_THAT(get(server, "/"), StartsWith("HTTP/1.1 200"));
}

TEST(Http, AHeadOverTheCapIsRefusedNotCollected) {
  const HttpServer server(routes(), {.head_bytes = 256});
  EXPECT_THAT(Client(server).say("GET / HTTP/1.1\r\nX: " + std::string(1000, 'x')).receive(), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(Client(server).say("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(1000, 'x') + "\r\n\r\n").receive(),
              StartsWith("HTTP/1.1 431"));
}

TEST(Http, ASilentClientIsDisconnected) {
  const HttpServer server(routes(), {.patience = Seconds{0.05}});
  EXPECT_THAT(Client(server).say("GET / HT").receive(), StartsWith("HTTP/1.1 408"));
}

TEST(Http, ClientsBeyondTheCapWaitForAConnection) {
  const HttpServer server(routes(), {.connections = 2, .patience = Seconds{0.1}});
  Client silent(server);
  Client silent_too(server);
  EXPECT_THAT(get(server, "/"), StartsWith("HTTP/1.1 200")) << "after the silent ones have lost theirs";
}

TEST(Http, StopsAtOnceWhateverClientsDo) {
  std::optional<HttpServer> server(std::in_place, routes());
  Client half(*server);
  half.say("GET / HTTP/1.1\r\n");
  Client deaf(*server);
  deaf.say("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const auto before = Clock::now();
  server.reset();
  EXPECT_LT(Clock::now() - before, 2s * slowdown());
}

TEST(Http, APortInUseIsNamed) {
  const HttpServer server(routes());
  const auto error = failure_of([&] { HttpServer(routes(), {.port = server.port()}); });
  EXPECT_EQ(error.kind, Kind::system);
  EXPECT_THAT(error.what, HasSubstr(fmt::format("127.0.0.1:{}", server.port())));
}

}  // namespace
}  // namespace cohort::observe
