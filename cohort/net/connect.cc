#include "cohort/net/connect.h"

#include <fmt/format.h>

#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/net/gather.h"
#include "cohort/net/mixed.h"
#include "cohort/net/probe.h"
#include "cohort/net/shm.h"
#include "cohort/net/tcp.h"

namespace cohort::net {
namespace {

void check(const MeshPlan& plan) {
  const auto ranks = static_cast<int>(plan.addresses.size());
  if (plan.me.value < 0 || plan.me.value >= ranks)
    throw_failure(Kind::usage, "rank {} cannot join a mesh of {}: the addresses of all ranks are needed", plan.me.value, ranks);
  if (plan.secret.empty()) throw_failure(Kind::usage, "rank {} cannot join a mesh without the job's secret", plan.me.value);
  if (plan.streams < 0 || plan.streams > kMostStreams)
    throw_failure(Kind::usage, "rank {} cannot join a mesh with {} sockets a link: 1 to {}, or 0 for auto", plan.me.value, plan.streams,
                  kMostStreams);
  if (!plan.hosts.empty() && plan.hosts.size() != plan.addresses.size())
    throw_failure(Kind::usage, "rank {} cannot join a mesh of {}: {} hosts are named, one for each rank is needed", plan.me.value, ranks,
                  plan.hosts.size());
}

using Wires = std::vector<std::optional<Wire>>;
using More = std::vector<std::vector<Wire>>;

// Further sockets to the ranks that will be reached over tcp.
More gather_more(const MeshPlan& plan, const Probe& probe, const Listener& listener, Deadline deadline) {
  if (plan.streams == 1 || (probe.all_share() && probe.own)) return {};
  std::vector<bool> far;
  for (const int host : probe.hosts) far.push_back(host != probe.hosts[static_cast<std::size_t>(plan.me.value)]);
  return gather_streams(plan, listener, far, deadline);
}

std::unique_ptr<Mesh> make_mixed(const MeshPlan& plan, Probe probe, Wires wires, More more) {
  const int here = probe.hosts[static_cast<std::size_t>(plan.me.value)];
  Wires inside(wires.size());
  for (std::size_t r = 0; r < wires.size(); ++r)
    if (probe.hosts[r] == here) inside[r] = std::exchange(wires[r], std::nullopt);
  return mixed_mesh(
      {.hosts = std::move(probe.hosts),
       .inside = {plan.me, plan.epoch, std::move(probe.own), std::move(probe.peers), std::move(inside), std::move(probe.bells)},
       .between = {.me = plan.me,
                   .epoch = plan.epoch,
                   .wires = std::move(wires),
                   .congestion = plan.congestion,
                   .all_far = plan.all_far,
                   .more = std::move(more)},
       .bell = std::move(probe.bell)});
}

std::unique_ptr<Mesh> make_mesh(const MeshPlan& plan, Probe probe, Wires wires, More more) {
  if (probe.all_share() && probe.own)
    return shm_mesh({plan.me, plan.epoch, std::move(probe.own), std::move(probe.peers), std::move(wires), {}});
  if (!probe.none_share()) return make_mixed(plan, std::move(probe), std::move(wires), std::move(more));
  return tcp_mesh({.me = plan.me,
                   .epoch = plan.epoch,
                   .wires = std::move(wires),
                   .congestion = plan.congestion,
                   .all_far = plan.all_far,
                   .more = std::move(more)});
}

}  // namespace

int streams_for(std::string_view congestion) { return paces(congestion) ? 4 : 1; }

std::unique_ptr<Mesh> connect_mesh(MeshPlan plan, Listener listener, Deadline deadline) {
  check(plan);
  if (plan.streams == 0) plan.streams = streams_for(plan.congestion);
  auto wires = gather_wires(plan, listener, deadline);
  Probe probe = probe_memory(plan.me, plan.transport, plan.hosts, wires, deadline, plan.given_up);
  More more = gather_more(plan, probe, listener, deadline);  // all have their wires: whoever calls now means these
  listener.fd.reset();
  const std::string why = probe.why;
  auto mesh = make_mesh(plan, std::move(probe), std::move(wires), std::move(more));
  log_debug("job '{}', epoch {}: {} ranks over {}{}{}", plan.job, plan.epoch.value, mesh->size(), mesh->transport(),
            why.empty() ? "" : ": ", why);
  return mesh;
}

}  // namespace cohort::net
