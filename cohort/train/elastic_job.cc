#include "cohort/train/elastic_job.h"

#include <algorithm>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/collective/calibrated.h"
#include "cohort/net/connect.h"
#include "cohort/net/interfaces.h"
#include "cohort/net/loopback.h"

namespace cohort {
namespace {

// Of another engine nobody would notice that it is not used. It keeps to the ranks it was opened with, and these change.
void refuse_other_engines(const std::string& comm) {
  if (comm.empty() || comm == "own") return;
  throw_failure(
      Kind::usage,
      "comm: {} keeps to the ranks it was opened with, and those of an elastic job change: drop --comm (COHORT_COMM), or run with a "
      "fixed number of ranks, without --min-n",
      comm);
}

}  // namespace

std::optional<group::SeatOptions> ElasticJob::from_environment(const group::Environment& environment) {
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
                    interface = value("COHORT_INTERFACE");
  refuse_other_engines(value("COHORT_COMM"));
  const net::Address coordinator = net::Address::parse(rendezvous);
  return group::SeatOptions{.job = job,
                            .coordinator = coordinator,
                            .secret = net::Secret::from_file(secret).use_tls(!tls.empty() && parse_bool(tls)),
                            .host = host.empty() ? group::kThisHost : host,
                            .listen = interface.empty() ? net::address_towards(coordinator) : net::interface_address(interface),
                            .shards = !shards.empty() && parse_bool(shards),
                            .heartbeat = parse_seconds(heartbeat)};
}

ElasticJob::ElasticJob(group::SeatOptions seat, JobOptions options)
    : where_(seat),
      options_([&] {
        refuse_other_engines(options.comm);  // before it takes its seat
        return std::move(options);
      }()),
      seat_(std::move(seat)) {}

std::unique_ptr<collective::Communicator> ElasticJob::connect(const group::Seat::Begun& epoch) {
  std::shared_ptr<net::Mesh> mesh;
  if (epoch.roster.size() == 1) {
    mesh = std::move(net::loopback_meshes(1).front());
  } else {
    net::MeshPlan plan{.job = epoch.roster.job,
                       .epoch = epoch.roster.epoch,
                       .me = epoch.rank,
                       .secret = where_.secret,
                       .addresses = {},
                       .transport = options_.transport,
                       .congestion = options_.congestion,
                       .all_far = options_.checksums == "always",
                       .streams = options_.streams,
                       .hosts = {},
                       .given_up = &seat_.sealed()};
    const auto& members = epoch.roster.members;
    const bool one_host = std::ranges::all_of(members, [&](const auto& m) { return m.host == members.front().host; });
    for (const auto& member : members) {
      plan.addresses.push_back(net::Address::parse(member.address));
      if (!one_host) plan.hosts.push_back(member.host);
    }
    mesh = net::connect_mesh(std::move(plan), seat_.listener(), Deadline::in(options_.start_timeout));
  }
  seat_.guard([mesh](const Error& why) { mesh->abort(why); });  // also while the communicator opens
  const std::string constants = epoch.rank == Rank{0} ? collective::find_calibration(options_.calibration, mesh->transport()) : "";
  auto comm = collective::open(mesh, {.timeout = options_.timeout,
                                      .warn_after = options_.warn_after,
                                      .algorithm = options_.algorithm,
                                      .canonical_only = options_.bits == "same",
                                      .calibration = constants});
  seat_.guard([mesh, inner = comm.get()](const Error& why) { inner->abort(why); });
  return comm;
}

bool ElasticJob::commit(collective::Communicator& comm) {
  const auto called_off = [&] { throw_failure(Kind::aborted, "epoch {} is over: its roster changes", comm.epoch().value); };
  if (!seat_.prepare()) called_off();
  std::int32_t wishes = seat_.wish() ? 1 : 0;
  comm.all_reduce(collective::piece(std::span(&wishes, 1)), collective::Op::sum, {.name = "the vote for this step"});
  if (!seat_.decide()) called_off();
  return wishes > 0;
}

void ElasticJob::leave_epoch(std::unique_ptr<collective::Communicator> comm, const Error* error) {
  seat_.guard({});
  if (comm && error) comm->abort(*error);
  comm.reset();
  seat_.left(error);
}

bool ends_epoch(const Error& error) { return error.kind == Kind::peer_lost || error.kind == Kind::timeout || error.kind == Kind::aborted; }

}  // namespace cohort
