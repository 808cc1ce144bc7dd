#include "cohort/launch/rank_setup.h"

#include <fmt/format.h>

#include <csignal>
#include <filesystem>

#include "cohort/base/text.h"
#include "cohort/launch/remote_shell.h"

namespace cohort::launch {
namespace {

constexpr int kRespawnsEach = 10;       // of a worker that dies again and again; more help nobody
constexpr int kHeartbeatsToNotice = 3;  // a worker is lost when so many heartbeats in a row are missing

elastic::ElasticRules elastic_rules(const LaunchPlan& plan) {
  const LaunchOptions& o = plan.options;
  return {.job = {},
          .min_workers = o.min_workers,
          .max_workers = o.max_workers > 0 ? o.max_workers : plan.ranks,
          .target_workers = plan.ranks,
          .respawns = o.respawns < 0 ? kRespawnsEach * plan.ranks : o.respawns,
          .quorum = o.quorum,
          .held_state = plan.worker.held_state,
          .heartbeat = o.lost_after.count() / kHeartbeatsToNotice,
          .start_grace = o.start_timeout.count(),
          .wait_limit = o.wait_limit.count(),
          .settle_limit = o.settle_limit.count()};
}

net::Address coordinator_of(const NodePlan& node) { return {node.master_addr, static_cast<std::uint16_t>(node.master_port + 1)}; }

void set_node(RankSetting& s, const NodePlan& node, const LaunchPlan& plan) {
  s.size = plan.ranks * node.nodes;
  s.ranks_per_host.assign(static_cast<std::size_t>(node.nodes), plan.ranks);
  s.host = node.node;
  s.rank = s.first = node.node * plan.ranks;
  s.host_name = fmt::format("node-{}", node.node);
  const net::Address coordinator = coordinator_of(node);
  s.rendezvous = coordinator.text();
  // Many a system gives its own name a loopback address: ranks that met there would tell the other nodes to look for them on loopback.
  if (node.node == 0 && net::SocketAddress::of(coordinator).address().is_loopback())
    s.rendezvous = reachable_addresses(plan.options.interface, coordinator.port).front();
  s.master_addr = node.master_addr;
}

}  // namespace

JobRendezvousOptions rendezvous_options(const LaunchPlan& plan) {
  JobRendezvousOptions r{
      .job = plan.options.job, .ranks = plan.ranks, .start_timeout = plan.options.start_timeout, .master_port = plan.options.master_port};
  r.tls = plan.options.tls;
  if (plan.options.elastic()) r.elastic = elastic_rules(plan);
  r.supervised = plan.options.supervised;
  if (!plan.hosts.empty()) r.listen = {listen_address(plan.options.interface), 0};
  if (!plan.node) return r;
  const NodePlan& node = *plan.node;
  r.job = node.job;
  r.ranks = plan.ranks * node.nodes;
  r.master_port = node.master_port;
  r.secret = net::Secret::from_file(node.secret_file);
  const net::Address coordinator = coordinator_of(node);
  r.listen = {listen_address(plan.options.interface), coordinator.port};
  if (node.node != 0) r.external_coordinator = coordinator.text();
  return r;
}

RankSetting rank_setting(const LaunchPlan& plan, const JobRendezvous& rendezvous) {
  const LaunchOptions& o = plan.options;
  RankSetting s{.size = plan.ranks,
                .job = rendezvous.job(),
                .rendezvous = rendezvous.address(),
                .secret_file = rendezvous.secret_file(),
                .master_port = rendezvous.master_port(),
                .role = o.role,
                .start_timeout = o.start_timeout.count(),
                .threads = o.threads > 0 ? o.threads : plan_threads(plan.host, plan.ranks),
                .threads_given = o.threads > 0,
                .log_level = o.log_level,
                .streams = o.streams};
  if (o.elastic()) {
    s.elastic = exact_seconds(o.lost_after / kHeartbeatsToNotice);
    s.launch = rendezvous.launch();
  }
  s.shards = o.elastic() && plan.worker.held_state != elastic::HeldState::whole;
  s.interface = o.interface;
  s.tls = o.tls;
  if (plan.node) set_node(s, *plan.node, plan);
  return s;
}

sigset_t rank_mask(const WorkerTraits& worker, sigset_t mask) {
  if (worker.sigquit_reports) sigaddset(&mask, SIGQUIT);  // one that comes while a rank still starts waits until it can be answered
  for (const int notice : {SIGTERM, SIGUSR1})
    if (worker.preemptible) sigaddset(&mask, notice);
  return mask;
}

ChildPlan child_plan(const LaunchPlan& plan, const RankSetting& setting, const Signals& signals) {
  const auto bindings = plan_binding(plan.host, plan.options.bind, plan.ranks);
  return {.program = &plan.program,
          .environment = environ_strings(rank_environment(plan.environment, setting)),
          .cpus = bindings[static_cast<std::size_t>(setting.rank - setting.first) % bindings.size()],
          .input = setting.rank == 0 ? plan.input : -1,
          .signal_mask = rank_mask(plan.worker, signals.mask_before()),
          .parent_death_signal = plan.saves_on_launcher_loss() ? SIGTERM : SIGKILL};
}

RemotePlan remote_plan(const LaunchPlan& plan, const JobRendezvous& rendezvous, const Signals& signals) {
  const LaunchOptions& o = plan.options;
  return {.hosts = plan.hosts,
          .shell = [&plan](const std::string& host) { return agent_command_line(plan.options, plan.environment, host); },
          .init = {.job = rendezvous.job(),
                   .secret = rendezvous.secret(),
                   .addresses = reachable_addresses(o.interface, rendezvous.port()),
                   .interface = o.interface,
                   .start_timeout = o.start_timeout.count(),
                   .master_port = o.master_port},
          .start = {.setting = rank_setting(plan, rendezvous),
                    .hosts = {},
                    .path = plan.program.path,
                    .folder = std::filesystem::current_path().string(),
                    .argv = plan.program.argv,
                    .environment = forwarded_environment(plan.environment),
                    .bind = o.bind,
                    .sigquit_reports = plan.worker.sigquit_reports,
                    .preemptible = plan.worker.preemptible,
                    .saves = plan.saves_on_launcher_loss()},
          .input = plan.input,
          .reads_input = o.input == Stdin::first_rank && !o.elastic(),
          .environment = plan.environment,
          .signal_mask = signals.mask_before(),
          .elastic = o.elastic(),
          .pool = plan.pool,
          .cool_down = o.host_cool_down,
          .leave_grace = o.stop_grace};
}

}  // namespace cohort::launch
