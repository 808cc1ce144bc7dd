#include "cohort/job/job.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/collective/cost/calibration_file.h"
#include "cohort/collective/plugin/backend.h"
#include "cohort/group/join.h"
#include "cohort/net/connect.h"
#include "cohort/net/transport/loopback.h"

namespace cohort::job {
namespace {

int cores_of(pid_t process) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(process, sizeof allowed, &allowed) == 0 ? std::max(1, CPU_COUNT(&allowed)) : 1;
}

// A rank that its launcher has bound (it may use fewer cores than its parent) has its share already; others divide the cores.
int share_of_cores(const group::RankInfo& info) {
  const int mine = cores_of(0);
  return mine < cores_of(getppid()) ? mine : std::max(1, mine / info.local_size);
}

// Under another launcher the log says how its variables were read; one rank logs it for all.
void announce(const group::RankInfo& info) {
  if (info.source == "alone") return log_info("a world of one: {}", info.because);
  const Level level = info.from_cohort() || info.rank != Rank{0} ? Level::debug : Level::info;
  log_at(level, "rank {} of {} ({} of {} on this host), by the variables of {}: {}", info.rank.value, info.size, info.local_rank,
         info.local_size, info.source, info.because);
}

struct Connected {
  group::Roster roster;
  std::shared_ptr<net::PeerLinks> links;
};

Connected connect(const group::RankInfo& info, const JobOptions& options) {
  if (info.size == 1) {
    group::Roster alone{info.job, Epoch{}, {{Rank{0}, "", getpid(), "localhost"}}};
    return {alone, std::move(net::loopback_world(1).front())};
  }
  group::Joined joined = group::join(info, {.start_timeout = options.start_timeout, .say = {}, .tls = options.tls});
  net::ConnectPlan plan{.job = joined.roster.job,
                        .epoch = joined.roster.epoch,
                        .me = info.rank,
                        .secret = joined.secret,
                        .addresses = {},
                        .transport = options.transport,
                        .congestion = options.congestion,
                        .all_far = options.checksums == "always",
                        .streams = options.streams,
                        .hosts = {}};
  for (const auto& member : joined.roster.members) {
    plan.addresses.push_back(net::Address::parse(member.address));
    if (!info.one_host()) plan.hosts.push_back(member.host);
  }
  return {joined.roster, net::connect_peers(std::move(plan), std::move(joined.listener), Deadline::in(options.start_timeout))};
}

}  // namespace

void fields(JobOptions& o, FieldList& f) {
  f("transport", o.transport, Words{"auto", "shm", "tcp"},
    "how ranks reach each other; auto: shared memory where it can be mapped, else tcp");
  f("congestion", o.congestion, "congestion control of tcp links; auto: cubic where the kernel has it");
  f("tls", o.tls, "encrypt what leaves a process, by TLS 1.3 with a key from the job's secret; every process of the job must say the same");
  f("checksums", o.checksums, Words{"auto", "always"},
    "of data over tcp; auto: between hosts; always: within a host, too; under tls none are needed");
  f("streams", o.streams, Range{0, net::kMostStreams}, "sockets of a tcp link, the same number on all ranks; 0: auto");
  f("timeout", o.timeout, Range{0.001, 1e9}, "longest wait of an operation before it fails and names the missing ranks");
  f("start_timeout", o.start_timeout, Range{0.001, 1e9}, "longest wait for the other ranks to join");
  f("warn_after", o.warn_after, Range{0, 1e9}, "a wait longer than this logs the ranks it waits for");
  f("log", o.log, Words{"trace", "debug", "info", "warning", "warn", "error", "off"},
    "what is logged to stderr; unset: what the program chose");
  f("algorithm", o.algorithm, "all-reduce algorithm for every call; empty: the cheapest for each");
  f("deterministic", o.deterministic, "only algorithms that give the same bits on any number of hosts and chunks");
  f.renamed("bits", "deterministic");
  f("calibration", o.calibration,
    "file of measured cost constants, or a folder/ with one per transport measured on this machine; unset: ~/.cache/cohort/; none: the "
    "built-in ones");
  f("backend", o.backend, collective::backend_names(),
    "who moves bulk data: native, or another library, which needs deterministic: false; auto: the fastest that is here");
  f.renamed("comm", "backend");
  f("backends", o.backends, "folder of the backends' libraries; unset: beside the program");
  f.renamed("engines", "backends");
  f("threads", o.threads, Range{0, 4096}, "what suggested_threads() answers; 0: this rank's share of the cores");
}

struct Job::Impl {
  group::RankInfo info;
  int threads = 1;
  group::Roster roster;
  std::unique_ptr<collective::Communicator> comm;
};

Job::Job(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Job::Job(Job&&) noexcept = default;
Job& Job::operator=(Job&&) noexcept = default;
Job::~Job() = default;

Rank Job::rank() const { return impl_->info.rank; }
int Job::size() const { return impl_->info.size; }
int Job::local_rank() const { return impl_->info.local_rank; }
int Job::local_size() const { return impl_->info.local_size; }
Epoch Job::epoch() const { return impl_->roster.epoch; }
collective::Communicator& Job::comm() const { return *impl_->comm; }
const group::Roster& Job::roster() const { return impl_->roster; }
const group::RankInfo& Job::rank_info() const { return impl_->info; }
int Job::suggested_threads() const { return impl_->threads; }

Job init(const group::RankInfo& info, const JobOptions& options) {
  if (!options.log.empty()) set_log_level(options.log);
  set_log_rank(info.size > 1 ? info.rank : kNoRank);
  announce(info);
  if (options.tls && options.backend != "native")
    throw_failure(Kind::usage,
                  "tls encrypts what the native backend sends, backend: {} would send in the clear beside it: say backend: native",
                  options.backend);
  auto impl = std::make_unique<Job::Impl>();
  impl->info = info;
  impl->threads = options.threads > 0 ? options.threads : share_of_cores(info);
  Connected connected = connect(info, options);
  impl->roster = std::move(connected.roster);
  log_debug("membership epoch {}, {} over {}", impl->roster.epoch.value, info.size == 1 ? "alone" : fmt::format("{} ranks", info.size),
            connected.links->transport());
  const std::string constants = info.rank == Rank{0} ? collective::find_calibration(options.calibration, connected.links->transport()) : "";
  const std::string address = impl->roster.members.at(static_cast<std::size_t>(info.rank.value)).address;
  collective::BackendOptions backend{.name = options.backend,
                                     .launcher = info.source,
                                     .one_host = info.one_host(),
                                     .local_rank = info.local_rank,
                                     .folder = options.backends};
  if (!address.empty()) backend.address = net::Address::parse(address).host;
  impl->comm = collective::open(std::move(connected.links),
                                {.timeout = options.timeout,
                                 .warn_after = options.warn_after,
                                 .algorithm = options.algorithm,
                                 .canonical_only = options.deterministic,
                                 .calibration = constants},
                                backend);
  return Job(std::move(impl));
}

Job init(JobOptions options) {
  Config(options).read_environment("COHORT_", [](const char* name) -> const char* {
    const char* value = std::getenv(name);
    return value == nullptr || *value == 0 ? nullptr : value;  // VARIABLE= is unset
  });
  if (options.calibration.empty()) options.calibration = collective::usual_calibration_folder();
  const group::Environment environment = group::read_environment();
  if (const auto elastic = environment.find("COHORT_ELASTIC"); elastic != environment.end() && !elastic->second.empty())
    throw_failure(Kind::usage,
                  "this program expects a fixed number of ranks, and the job is elastic: start it without --min-n, or use ElasticJob");
  return init(group::find_rank_info(environment), options);
}

}  // namespace cohort::job
