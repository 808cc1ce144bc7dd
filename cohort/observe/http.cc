#include "cohort/observe/http.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/net/socket/socket.h"

namespace cohort::observe {
namespace {

constexpr Seconds kRest{
    0.01};  // after a refused request: bad clients are accepted a few at a time, and the others wait no longer than that
constexpr int kBacklog = 1024;  // clients that connect meanwhile
constexpr Seconds kLinger{1};   // for the client to close after our last byte: closing first, with its bytes unread, would reset the answer

std::string_view reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

HttpResponse refusal(int status) { return {.status = status, .body = fmt::format("{} {}\n", status, reason(status))}; }

HttpResponse answer(const HttpRoutes& routes, const HttpRequest& request) {
  const auto route = routes.find(request.path);
  if (route == routes.end()) return refusal(404);
  try {
    return route->second(request);
  } catch (const std::exception& problem) {
    log_warning("http: the answer for {} failed: {}", printable(request.path), problem.what());
    return refusal(500);
  }
}

}  // namespace

std::string encode_response(const HttpResponse& response, bool head_only) {
  std::string out = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n{}\r\n",
      response.status, reason(response.status), response.type, response.body.size(), response.status == 405 ? "Allow: GET, HEAD\r\n" : "");
  if (!head_only) out += response.body;
  return out;
}

struct HttpServer::Connection {
  enum class State : std::uint8_t { reading, writing, lingering };
  Fd fd;
  Deadline deadline;
  State state = State::reading;
  std::string in{};
  std::string out{};
  std::size_t sent = 0;
};

// Owned by the server's thread.
class HttpServer::Loop {
 public:
  Loop(HttpRoutes routes, HttpOptions options, int listener, int stop)
      : routes_(std::move(routes)), options_(options), listener_(listener), stop_(stop) {}

  void run() {
    while (wait()) {
      const std::size_t known = connections_.size();
      if (polled_[1].revents != 0) accept_all();
      for (std::size_t i = 0; i < known; ++i)
        if (polled_[2 + i].revents != 0) advance(connections_[i]);
      std::erase_if(connections_, [this](Connection& c) { return !c.fd || (c.deadline.passed() && !late(c)); });
    }
  }

 private:
  // poll(2): [stop, listener, connections...]. False when it is time to end.
  bool wait() {
    polled_.clear();
    if (std::exchange(refused_, false)) {
      pollfd stop{stop_, POLLIN, 0};
      ::poll(&stop, 1, Deadline::in(kRest).left_ms());
    }
    polled_.push_back({stop_, POLLIN, 0});
    const bool accepts = connections_.size() < options_.connections && accept_after_.passed();
    polled_.push_back({accepts ? listener_ : -1, POLLIN, 0});
    Deadline next = connections_.size() < options_.connections && !accepts ? accept_after_ : Deadline{};
    for (const auto& c : connections_) {
      polled_.push_back({c.fd.get(), static_cast<short>(c.state == Connection::State::writing ? POLLOUT : POLLIN), 0});
      next = next.sooner(c.deadline);
    }
    const int ready = ::poll(polled_.data(), polled_.size(), next.left_ms());
    if (ready <= 0)
      for (auto& p : polled_) p.revents = 0;
    return polled_[0].revents == 0;
  }

  void accept_all() {
    while (connections_.size() < options_.connections) {
      Fd fd{::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
      if (!fd) return stop_polling(errno);
      connections_.push_back({std::move(fd), Deadline::in(options_.patience)});
      read(connections_.back());  // most have asked by now
    }
  }

  // Out of descriptors: the listener stays ready, so polling it pauses instead of spinning.
  void stop_polling(int problem) {
    if (problem == EMFILE || problem == ENFILE || problem == ENOMEM || problem == ENOBUFS) accept_after_ = Deadline::in(Seconds{0.1});
  }

  void advance(Connection& c) {
    switch (c.state) {
      case Connection::State::reading: return read(c);
      case Connection::State::writing: return write(c);
      case Connection::State::lingering: return linger(c);
    }
  }

  void read(Connection& c) {
    char block[2048];
    const auto got = net::read_some(c.fd.get(), std::as_writable_bytes(std::span(block)));
    if (got.state == net::IoState::closed) {
      refused_ = true;  // it asked for nothing
      return c.fd.reset();
    }
    if (got.state == net::IoState::later) return;
    c.in.append(block, got.bytes);
    const auto end = head_end(c.in);
    if (end.value_or(c.in.size()) > options_.head_bytes) return reply(c, refusal(431), false);
    if (!end) return;
    const auto head = parse_head(std::string_view(c.in).substr(0, *end));
    reply(c, head.status == 200 ? answer(routes_, head.request) : refusal(head.status), head.request.head_only);
  }

  void reply(Connection& c, const HttpResponse& response, bool head_only) {
    refused_ = refused_ || response.status != 200;
    c.out = encode_response(response, head_only);
    c.in.clear();
    c.state = Connection::State::writing;
    c.deadline = Deadline::in(options_.patience);
    write(c);
  }

  void write(Connection& c) {
    while (c.sent < c.out.size()) {
      const iovec part{c.out.data() + c.sent, c.out.size() - c.sent};
      const auto put = net::write_some(c.fd.get(), std::span(&part, 1));
      if (put.state == net::IoState::closed) return c.fd.reset();
      if (put.state == net::IoState::later) return;
      c.sent += put.bytes;
    }
    ::shutdown(c.fd.get(), SHUT_WR);
    c.out = {};
    c.state = Connection::State::lingering;
    c.deadline = Deadline::in(kLinger);
    linger(c);
  }

  static void linger(Connection& c) {
    char block[4096];
    if (net::read_some(c.fd.get(), std::as_writable_bytes(std::span(block))).state == net::IoState::closed) c.fd.reset();
  }

  // A request that did not arrive in time still gets an answer; true when the connection lives on for it.
  bool late(Connection& c) {
    if (c.state != Connection::State::reading) return false;
    reply(c, refusal(408), false);
    return static_cast<bool>(c.fd);
  }

  const HttpRoutes routes_;
  const HttpOptions options_;
  const int listener_, stop_;
  std::vector<Connection> connections_;
  std::vector<pollfd> polled_;
  bool refused_ = false;  // a request in this round
  Deadline accept_after_{Clock::time_point::min()};
};

HttpServer::HttpServer(HttpRoutes routes, HttpOptions options) : listener_(net::open_socket(AF_INET)), stop_(eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw_system("http: eventfd");
  const int yes = 1;  // a fixed port is free again as soon as the job before has ended
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const auto at = net::SocketAddress::of({"127.0.0.1", options.port});
  if (::bind(listener_.get(), at.get(), at.length) != 0 || ::listen(listener_.get(), kBacklog) != 0)
    throw_system(fmt::format("http: cannot listen on 127.0.0.1:{} (port 0 takes a free one)", options.port));
  port_ = net::local_address(listener_.get()).port;
  loop_ = std::make_unique<Loop>(std::move(routes), options, listener_.get(), stop_.get());
  thread_ = std::thread([this] { loop_->run(); });
}

HttpServer::~HttpServer() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

std::string HttpServer::url(std::string_view path) const { return fmt::format("http://127.0.0.1:{}{}", port_, path); }

}  // namespace cohort::observe
