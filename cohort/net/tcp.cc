#include "cohort/net/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <future>

#include "cohort/base/error.h"
#include "cohort/net/tcp_mesh.h"

namespace cohort::net {

std::string set_congestion(int fd, const std::string& name) {
  char now[32] = {};  // longer than any name the kernel has
  socklen_t size = sizeof now;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &size) != 0) return "none";  // a unix socket
  const std::string wanted = name == "auto" ? "cubic" : name;
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, wanted.data(), static_cast<socklen_t>(wanted.size())) == 0) return wanted;
  if (name == "auto") return now;
  throw_failure(Kind::usage, "tcp: congestion control '{}' is not to be had ({}); see /proc/sys/net/ipv4/tcp_available_congestion_control",
                name, std::strerror(errno));
}

bool paces(std::string_view congestion) { return congestion.starts_with("bbr"); }

std::unique_ptr<Mesh> tcp_mesh(TcpPlan plan) { return std::make_unique<TcpMesh>(std::move(plan)); }

std::vector<std::unique_ptr<Mesh>> tcp_meshes(int ranks, Epoch epoch, const std::string& congestion, bool all_far, bool tls, int streams) {
  const auto n = static_cast<std::size_t>(ranks);
  const Secret secret = Secret::random().use_tls(tls);
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const Deadline deadline = Deadline::in(30s);
  std::vector<TcpPlan> plans(n);
  for (std::size_t r = 0; r < n; ++r) {
    plans[r] = {.me = Rank{static_cast<std::int32_t>(r)}, .epoch = epoch, .congestion = congestion, .all_far = all_far};
    plans[r].wires.resize(n);
    plans[r].more.resize(n);
  }
  const auto hello = [&](std::size_t r, int stream) { return Hello{"threads", epoch, plans[r].me, Role::worker, stream, streams}; };
  const auto keep = [](TcpPlan& plan, std::size_t peer, Wire wire) {
    if (!plan.wires[peer]) return void(plan.wires[peer] = std::move(wire));
    plan.more[peer].push_back(std::move(wire));
  };
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j)
      for (int s = 0; s < streams; ++s) {
        auto dialer = std::async(std::launch::async, [&] { return Wire::connect(listener.address, secret, hello(i, s), deadline); });
        keep(plans[j], i, Wire::accept(accept_one(listener, deadline), secret, hello(j, 0), deadline));
        keep(plans[i], j, dialer.get());
      }
  std::vector<std::unique_ptr<Mesh>> meshes;
  for (auto& plan : plans) meshes.push_back(tcp_mesh(std::move(plan)));
  return meshes;
}

}  // namespace cohort::net
