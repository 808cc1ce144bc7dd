#include "cohort/net/connect.h"

#include <fmt/format.h>

#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/net/connect_pairs.h"
#include "cohort/net/memory_probe.h"
#include "cohort/net/mixed.h"
#include "cohort/net/shm/shm.h"
#include "cohort/net/tcp/tcp.h"

namespace cohort::net {
namespace {

void check(const ConnectPlan& plan) {
  const auto ranks = static_cast<int>(plan.addresses.size());
  if (plan.me.value < 0 || plan.me.value >= ranks)
    throw_failure(Kind::usage, "rank {} cannot connect to a world of {}: the addresses of all ranks are needed", plan.me.value, ranks);
  if (plan.secret.empty()) throw_failure(Kind::usage, "rank {} cannot connect to its peers without the job's secret", plan.me.value);
  if (plan.streams < 0 || plan.streams > kMostStreams)
    throw_failure(Kind::usage, "rank {} cannot connect with {} sockets a link: 1 to {}, or 0 for auto", plan.me.value, plan.streams,
                  kMostStreams);
  if (!plan.hosts.empty() && plan.hosts.size() != plan.addresses.size())
    throw_failure(Kind::usage, "rank {} cannot connect to a world of {}: {} hosts are named, one for each rank is needed", plan.me.value,
                  ranks, plan.hosts.size());
}

using ControlConnections = std::vector<std::optional<ControlConnection>>;
using More = std::vector<std::vector<ControlConnection>>;

// Further sockets to the ranks that will be reached over tcp.
More connect_more(const ConnectPlan& plan, const MemoryProbe& probe, const Listener& listener, Deadline deadline) {
  if (plan.streams == 1 || (probe.all_share() && probe.own)) return {};
  std::vector<bool> far;
  for (const int host : probe.hosts) far.push_back(host != probe.hosts[static_cast<std::size_t>(plan.me.value)]);
  return connect_extra_streams(plan, listener, far, deadline);
}

std::unique_ptr<PeerLinks> make_mixed(const ConnectPlan& plan, MemoryProbe probe, ControlConnections connections, More more) {
  const int here = probe.hosts[static_cast<std::size_t>(plan.me.value)];
  ControlConnections inside(connections.size());
  for (std::size_t r = 0; r < connections.size(); ++r)
    if (probe.hosts[r] == here) inside[r] = std::exchange(connections[r], std::nullopt);
  return mixed_peer_links(
      {.hosts = std::move(probe.hosts),
       .inside = {plan.me, plan.epoch, std::move(probe.own), std::move(probe.peers), std::move(inside), std::move(probe.wake_pipes)},
       .between = {.me = plan.me,
                   .epoch = plan.epoch,
                   .connections = std::move(connections),
                   .congestion = plan.congestion,
                   .all_far = plan.all_far,
                   .more = std::move(more)},
       .wake_pipe = std::move(probe.wake_pipe)});
}

std::unique_ptr<PeerLinks> make_peer_links(const ConnectPlan& plan, MemoryProbe probe, ControlConnections connections, More more) {
  if (probe.all_share() && probe.own)
    return shm_peer_links({plan.me, plan.epoch, std::move(probe.own), std::move(probe.peers), std::move(connections), {}});
  if (!probe.none_share()) return make_mixed(plan, std::move(probe), std::move(connections), std::move(more));
  return tcp_peer_links({.me = plan.me,
                         .epoch = plan.epoch,
                         .connections = std::move(connections),
                         .congestion = plan.congestion,
                         .all_far = plan.all_far,
                         .more = std::move(more)});
}

}  // namespace

int streams_for(std::string_view congestion) { return paces(congestion) ? 4 : 1; }

std::unique_ptr<PeerLinks> connect_peers(ConnectPlan plan, Listener listener, Deadline deadline) {
  check(plan);
  if (plan.streams == 0) plan.streams = streams_for(plan.congestion);
  auto connections = connect_all_pairs(plan, listener, deadline);
  MemoryProbe probe = probe_memory(plan.me, plan.transport, plan.hosts, connections, deadline, plan.given_up);
  More more = connect_more(plan, probe, listener, deadline);  // all ranks have their first connections: later ones are these
  listener.fd.reset();
  const std::string why = probe.why;
  auto links = make_peer_links(plan, std::move(probe), std::move(connections), std::move(more));
  log_debug("job '{}', membership epoch {}: {} ranks over {}{}{}", plan.job, plan.epoch.value, links->size(), links->transport(),
            why.empty() ? "" : ": ", why);
  return links;
}

}  // namespace cohort::net
