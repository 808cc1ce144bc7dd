#include "cohort/net/tcp/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <future>

#include "cohort/base/error.h"
#include "cohort/net/socket/listener.h"
#include "cohort/net/tcp/tcp_transport.h"

namespace cohort::net {

std::string set_congestion(int fd, const std::string& name) {
  char now[32] = {};  // longer than any name the kernel has
  socklen_t size = sizeof now;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &size) != 0) return "none";  // a unix socket
  const std::string wanted = name == "auto" ? "cubic" : name;
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, wanted.data(), static_cast<socklen_t>(wanted.size())) == 0) return wanted;
  if (name == "auto") return now;
  throw_failure(Kind::usage, "tcp: congestion control '{}' is not available ({}); see /proc/sys/net/ipv4/tcp_available_congestion_control",
                name, std::strerror(errno));
}

bool paces(std::string_view congestion) { return congestion.starts_with("bbr"); }

std::unique_ptr<PeerLinks> tcp_peer_links(TcpPlan plan) { return std::make_unique<TcpTransport>(std::move(plan)); }

std::vector<std::unique_ptr<PeerLinks>> tcp_world(int ranks, Epoch epoch, const std::string& congestion, bool all_far, bool tls,
                                                  int streams) {
  const auto n = static_cast<std::size_t>(ranks);
  const Secret secret = Secret::random().use_tls(tls);
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const Deadline deadline = Deadline::in(30s);
  std::vector<TcpPlan> plans(n);
  for (std::size_t r = 0; r < n; ++r) {
    plans[r] = {.me = Rank{static_cast<std::int32_t>(r)}, .epoch = epoch, .congestion = congestion, .all_far = all_far};
    plans[r].connections.resize(n);
    plans[r].more.resize(n);
  }
  const auto hello = [&](std::size_t r, int stream) { return Hello{"threads", epoch, plans[r].me, Role::worker, stream, streams}; };
  const auto store = [](TcpPlan& plan, std::size_t peer, ControlConnection connection) {
    if (!plan.connections[peer]) return void(plan.connections[peer] = std::move(connection));
    plan.more[peer].push_back(std::move(connection));
  };
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j)
      for (int s = 0; s < streams; ++s) {
        auto dialer =
            std::async(std::launch::async, [&] { return ControlConnection::connect(listener.address, secret, hello(i, s), deadline); });
        store(plans[j], i, ControlConnection::accept(accept_one(listener, deadline), secret, hello(j, 0), deadline));
        store(plans[i], j, dialer.get());
      }
  std::vector<std::unique_ptr<PeerLinks>> world;
  for (auto& plan : plans) world.push_back(tcp_peer_links(std::move(plan)));
  return world;
}

}  // namespace cohort::net
