#include "cohort/net/connect.h"

#include <fmt/format.h>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/net/gather.h"
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
}

}  // namespace

std::unique_ptr<Mesh> connect_mesh(MeshPlan plan, Listener listener, Deadline deadline) {
  check(plan);
  auto wires = gather_wires(plan, listener, deadline);
  listener.fd.reset();
  Probe probe = probe_memory(plan.me, plan.transport, wires, deadline);
  log_debug("job '{}', epoch {}: {} ranks over {}{}", plan.job, plan.epoch.value, wires.size(), probe.shared ? "shm" : "tcp: ", probe.why);
  if (probe.shared) return shm_mesh({plan.me, plan.epoch, std::move(probe.own), std::move(probe.peers), std::move(wires)});
  return tcp_mesh({plan.me, plan.epoch, std::move(wires), plan.congestion});
}

}  // namespace cohort::net
