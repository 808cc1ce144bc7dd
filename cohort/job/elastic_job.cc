#include "cohort/job/elastic_job.h"

#include <algorithm>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/base/log_worker.h"
#include "cohort/base/text.h"
#include "cohort/collective/cost/calibration_file.h"
#include "cohort/net/connect.h"
#include "cohort/net/socket/interfaces.h"
#include "cohort/net/transport/loopback.h"

namespace cohort::job {
namespace {

// Otherwise it would be ignored in silence. Another backend keeps to the ranks it was opened with, and these change.
void refuse_other_backends(const std::string& backend) {
  if (backend.empty() || backend == "native") return;
  throw_failure(Kind::usage,
                "backend: {} keeps to the ranks it was opened with, and those of an elastic job change: drop --backend (COHORT_BACKEND), "
                "or run with a "
                "fixed number of ranks, without --min-n",
                backend);
}

}  // namespace

std::optional<elastic::ElasticWorkerOptions> ElasticJob::from_environment(const group::Environment& environment) {
  const auto value = [&](const char* name) {
    const auto at = environment.find(name);
    return at == environment.end() ? std::string() : at->second;
  };
  const std::string heartbeat = value("COHORT_ELASTIC");
  if (heartbeat.empty()) return std::nullopt;
  const std::string job = value("COHORT_JOB"), rendezvous = value("COHORT_RENDEZVOUS"), secret = value("COHORT_SECRET_FILE");
  if (job.empty() || rendezvous.empty() || secret.empty())
    throw_failure(Kind::usage,
                  "COHORT_ELASTIC={} without COHORT_JOB, COHORT_RENDEZVOUS and COHORT_SECRET_FILE: `cohort run --min-n` sets all",
                  heartbeat);
  const std::string tls = value("COHORT_TLS"), shards = value("COHORT_SHARDS"), host = value("COHORT_HOST"),
                    interface = value("COHORT_INTERFACE"), number = value("COHORT_RANK");
  refuse_other_backends(value("COHORT_BACKEND"));
  const net::Address coordinator = net::Address::parse(rendezvous);
  return elastic::ElasticWorkerOptions{.job = job,
                                       .coordinator = coordinator,
                                       .secret = net::Secret::from_file(secret).use_tls(!tls.empty() && parse_bool(tls)),
                                       .launch = value("COHORT_LAUNCH_ID"),
                                       .host = host.empty() ? group::kThisHost : host,
                                       .listen = interface.empty() ? net::address_towards(coordinator) : net::interface_address(interface),
                                       .shards = !shards.empty() && parse_bool(shards),
                                       .heartbeat = parse_seconds(heartbeat),
                                       .number = number.empty() ? -1 : static_cast<int>(parse_int(number))};
}

ElasticJob::ElasticJob(elastic::ElasticWorkerOptions elastic_worker, JobOptions options)
    : worker_options_(elastic_worker),
      options_([&] {
        refuse_other_backends(options.backend);  // before it joins
        return std::move(options);
      }()),
      elastic_worker_(std::move(elastic_worker)) {
  name_in_log(kNoRank);
}

void ElasticJob::name_in_log(Rank rank) const {
  worker_options_.number >= 0 ? set_log_worker(worker_options_.number, rank) : set_log_rank(rank);
}

std::unique_ptr<collective::Communicator> ElasticJob::connect(const elastic::ElasticWorker::Begun& epoch) {
  name_in_log(epoch.rank);
  std::shared_ptr<net::PeerLinks> links;
  if (epoch.roster.size() == 1) {
    links = std::move(net::loopback_world(1).front());
  } else {
    net::ConnectPlan plan{.job = epoch.roster.job,
                          .epoch = epoch.roster.epoch,
                          .me = epoch.rank,
                          .secret = worker_options_.secret,
                          .addresses = {},
                          .transport = options_.transport,
                          .congestion = options_.congestion,
                          .all_far = options_.checksums == "always",
                          .streams = options_.streams,
                          .hosts = {},
                          .given_up = &elastic_worker_.sealed()};
    const auto& members = epoch.roster.members;
    const bool one_host = std::ranges::all_of(members, [&](const auto& m) { return m.host == members.front().host; });
    for (const auto& member : members) {
      plan.addresses.push_back(net::Address::parse(member.address));
      if (!one_host) plan.hosts.push_back(member.host);
    }
    links = net::connect_peers(std::move(plan), elastic_worker_.listener(), Deadline::in(options_.start_timeout));
  }
  elastic_worker_.guard([links](const Error& why) { links->abort(why); });  // also while the communicator opens
  const std::string constants = epoch.rank == Rank{0} ? collective::find_calibration(options_.calibration, links->transport()) : "";
  auto comm = collective::open(links, {.timeout = options_.timeout,
                                       .warn_after = options_.warn_after,
                                       .algorithm = options_.algorithm,
                                       .canonical_only = options_.deterministic,
                                       .calibration = constants});
  elastic_worker_.guard([links, inner = comm.get()](const Error& why) { inner->abort(why); });
  return comm;
}

bool ElasticJob::commit(collective::Communicator& comm) {
  const auto called_off = [&] { throw_failure(Kind::aborted, "membership epoch {} is over: its roster changes", comm.epoch().value); };
  if (!elastic_worker_.prepare()) called_off();
  std::int32_t wishes = elastic_worker_.change_requested() ? 1 : 0;
  comm.all_reduce(collective::piece(std::span(&wishes, 1)), collective::Op::sum, {.name = "vote of the step"});
  if (!elastic_worker_.decide()) called_off();
  return wishes > 0;
}

void ElasticJob::leave_epoch(std::unique_ptr<collective::Communicator> comm, const Error* error) {
  elastic_worker_.guard({});
  if (comm && error) comm->abort(*error);
  comm.reset();
  elastic_worker_.left(error);
}

bool ends_epoch(const Error& error) { return error.kind == Kind::peer_lost || error.kind == Kind::timeout || error.kind == Kind::aborted; }

}  // namespace cohort::job
