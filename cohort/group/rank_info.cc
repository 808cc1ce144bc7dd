#include "cohort/group/rank_info.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/group/hosts.h"

namespace cohort::group {
namespace {

using Names = std::array<std::string_view, 3>;  // the first that is set counts

struct Family {
  std::string_view name;
  Names rank, size, local_rank, local_size;
  std::string_view inside;  // counts only when this variable is set too
  bool outer;               // it may start other launchers, so its ranks need not be those of the program
  std::string (*job)(const Environment&);
};

std::optional<std::string_view> find(const Environment& env, std::string_view name) {
  const auto at = env.find(name);
  if (name.empty() || at == env.end() || at->second.empty()) return std::nullopt;
  return at->second;
}

struct Variable {
  std::string_view name;
  std::optional<std::string_view> value;
};

Variable first_set(const Environment& env, const Names& names) {
  for (const auto name : names)
    if (const auto value = find(env, name)) return {name, value};
  return {names[0], std::nullopt};
}

// "prefix" followed by the values of the variables that are set; empty when none is.
std::string id_from(const Environment& env, std::initializer_list<std::string_view> names) {
  std::string id;
  for (const auto name : names)
    if (const auto value = find(env, name)) id += fmt::format("{}{}", id.empty() ? "" : ".", *value);
  return id;
}

std::string cohort_job(const Environment& env) { return id_from(env, {"COHORT_JOB"}); }
std::string torchrun_job(const Environment& env) {
  return id_from(env, {"TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"});
}
std::string horovod_job(const Environment& env) { return id_from(env, {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"}); }
std::string openmpi_job(const Environment& env) { return id_from(env, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}); }
std::string slurm_job(const Environment& env) { return id_from(env, {"SLURM_JOB_ID", "SLURM_STEP_ID"}); }
std::string pmi_job(const Environment& env) { return id_from(env, {"PMI_JOBID", "PMI_PORT"}); }
std::string pmix_job(const Environment& env) { return id_from(env, {"PMIX_NAMESPACE"}); }

constexpr std::array<Family, 7> kFamilies{{
    {"cohort", {"COHORT_RANK"}, {"COHORT_SIZE"}, {"COHORT_LOCAL_RANK"}, {"COHORT_LOCAL_SIZE"}, "", false, cohort_job},
    {"torchrun", {"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}, "", false, torchrun_job},
    {"horovod", {"HOROVOD_RANK"}, {"HOROVOD_SIZE"}, {"HOROVOD_LOCAL_RANK"}, {"HOROVOD_LOCAL_SIZE"}, "", false, horovod_job},
    {"openmpi",
     {"OMPI_COMM_WORLD_RANK"},
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     "",
     false,
     openmpi_job},
    {"slurm",
     {"SLURM_PROCID"},
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     {"SLURM_LOCALID"},
     {},
     "SLURM_STEP_ID",
     true,
     slurm_job},
    {"pmi", {"PMI_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALRANKID"}, {"MPI_LOCALNRANKS"}, "PMI_SIZE", false, pmi_job},
    {"pmix", {"PMIX_RANK"}, {"PMIX_SIZE"}, {"PMIX_LOCAL_RANK"}, {"PMIX_LOCAL_SIZE"}, "PMIX_SIZE", false, pmix_job},
}};

constexpr int kMostRanks = 1 << 20;  // more is a typo

int read_int(const Variable& v, int least, int most, std::string_view because) {
  std::int64_t value = least - 1;  // NOLINT(clang-analyzer-deadcode.DeadStores): stays when parse_int throws
  try {
    value = parse_int(*v.value);
  } catch (const Failure&) {  // the message below names the variable, which parse_int does not know
  }
  if (value < least || value > most)
    throw_failure(Kind::usage, "{}={} must be an integer from {} to {} ({}); set by the launcher, or unset it", v.name, printable(*v.value),
                  least, most, because);
  return static_cast<int>(value);
}

bool any_set(const Environment& env, const Family& f) {
  if (!f.inside.empty() && !find(env, f.inside)) return false;
  return first_set(env, f.rank).value || first_set(env, f.size).value;
}

std::string spelled(std::span<const Variable> variables) {
  std::vector<std::string> words;
  for (const auto& v : variables)
    if (v.value) words.push_back(fmt::format("{}={}", v.name, printable(*v.value)));
  return join(words, " ");
}

// "2(x3),1" with node 3 gives 1: tasks on that node, from Slurm's run-length list.
std::optional<int> slurm_tasks_here(const Environment& env) {
  auto list = find(env, "SLURM_STEP_TASKS_PER_NODE");
  if (!list) list = find(env, "SLURM_TASKS_PER_NODE");
  const auto node_text = find(env, "SLURM_NODEID");
  if (!list || !node_text) return std::nullopt;
  const std::int64_t node = parse_int(*node_text);
  const auto tasks = parse_tasks_per_node(*list);
  if (node < 0 || node >= static_cast<std::int64_t>(tasks.size())) return std::nullopt;
  return tasks[static_cast<std::size_t>(node)];
}

bool master_is_local(const Environment& env) {
  const auto master = find(env, "MASTER_ADDR");
  return master && (*master == "localhost" || *master == "::1" || master->starts_with("127."));
}

// Local rank and size where the family has no variable for them, or they are not set.
void add_local_rank(const Environment& env, const Family& f, RankInfo& p, const Variable& local_rank, const Variable& local_size) {
  std::optional<int> here;
  if (f.name == "slurm") here = slurm_tasks_here(env);
  if (local_size.value) here = read_int(local_size, 1, p.size, p.because);
  if (local_rank.value && here) {
    p.local_size = *here;
    p.local_rank = read_int(local_rank, 0, p.local_size - 1, p.because);
    return;
  }
  const bool neither = !local_rank.value && !here;
  if (neither && (p.size == 1 || (f.name == "torchrun" && master_is_local(env)))) {  // RANK and WORLD_SIZE exported by hand
    p.local_rank = p.rank.value;
    p.local_size = p.size;
    return;
  }
  throw_failure(Kind::usage, "{} gives the rank, but not the local rank and the local size: set {} and {}", p.because, local_rank.name,
                f.name == "slurm" ? "SLURM_STEP_TASKS_PER_NODE with SLURM_NODEID" : local_size.name);
}

RankInfo read_family(const Environment& env, const Family& f) {
  const Variable rank = first_set(env, f.rank), size = first_set(env, f.size);
  const Variable local_rank = first_set(env, f.local_rank), local_size = first_set(env, f.local_size);
  const std::array<Variable, 4> all{rank, size, local_rank, local_size};
  RankInfo p;
  p.source = f.name;
  p.because = spelled(all);
  if (!rank.value || !size.value)
    throw_failure(Kind::usage, "{} is set but {} is not: set both, or neither, or COHORT_PLACE=alone to run as a world of one", p.because,
                  rank.value ? size.name : rank.name);
  p.size = read_int(size, 1, kMostRanks, p.because);
  p.rank = Rank{read_int(rank, 0, p.size - 1, p.because)};
  add_local_rank(env, f, p, local_rank, local_size);
  p.job = f.job(env);
  return p;
}

// Where two launchers give a process different ranks, neither is certain to be right.
void refuse_contradiction(const Environment& env, const Family& chosen, const RankInfo& p) {
  if (chosen.name == "cohort" || find(env, "TORCHELASTIC_RUN_ID")) return;  // these start their own ranks inside anything
  for (const Family& f : kFamilies) {
    if (f.name == chosen.name || f.outer || !any_set(env, f)) continue;
    const Variable rank = first_set(env, f.rank), size = first_set(env, f.size);
    if (rank.value == std::to_string(p.rank.value) && size.value == std::to_string(p.size)) continue;
    const std::array<Variable, 2> both{rank, size};
    throw_failure(Kind::usage, "{} ({}) contradicts {} ({}): unset one, or choose with COHORT_PLACE={} or COHORT_PLACE={}", p.because,
                  p.source, spelled(both), f.name, p.source, f.name);
  }
}

// Where the rendezvous is: set by `cohort run`, or by the user for several hosts; torchrun's store uses MASTER_PORT itself, so the next
// port is taken.
void add_rendezvous(const Environment& env, RankInfo& p) {
  p.secret_file = find(env, "COHORT_SECRET_FILE").value_or("");
  p.rendezvous = find(env, "COHORT_RENDEZVOUS").value_or("");
  p.host = find(env, "COHORT_HOST").value_or("");
  p.interface = find(env, "COHORT_INTERFACE").value_or("");
  if (const auto job = find(env, "COHORT_JOB")) p.job = *job;
  if (p.from_cohort() && p.size > 1 && (p.rendezvous.empty() || p.secret_file.empty() || p.job.empty()))
    throw_failure(Kind::usage, "{} needs COHORT_JOB, COHORT_RENDEZVOUS and COHORT_SECRET_FILE too; `cohort run` sets them all", p.because);
  const auto host = find(env, "MASTER_ADDR"), port = find(env, "MASTER_PORT");
  if (!p.rendezvous.empty() || p.one_host() || !host || !port) return;
  const int next = read_int({"MASTER_PORT", port}, 1, 65534, p.because) + 1;
  p.rendezvous = host->find(':') == host->npos ? fmt::format("{}:{}", *host, next) : fmt::format("[{}]:{}", *host, next);
}

const Family* choose(const Environment& env) {
  if (const auto wanted = find(env, "COHORT_PLACE")) {
    std::vector<std::string_view> names{"alone"};
    for (const Family& f : kFamilies) {
      if (f.name == *wanted) return &f;
      names.push_back(f.name);
    }
    if (*wanted == "alone") return nullptr;
    throw_unknown("COHORT_PLACE", *wanted, names);
  }
  for (const Family& f : kFamilies)
    if (any_set(env, f)) return &f;
  return nullptr;
}

}  // namespace

RankInfo find_rank_info(const Environment& env) {
  const Family* family = choose(env);
  const bool forced = find(env, "COHORT_PLACE").has_value();
  if (family == nullptr) {
    RankInfo alone;
    alone.because = forced ? "COHORT_PLACE=alone" : "no launcher's variables are set";
    return alone;
  }
  if (forced && !any_set(env, *family))
    throw_failure(Kind::usage, "COHORT_PLACE={} but {} and {} are not set", family->name, family->rank[0], family->size[0]);
  RankInfo info = read_family(env, *family);
  if (!forced) refuse_contradiction(env, *family, info);
  add_rendezvous(env, info);
  return info;
}

Environment read_environment() {
  Environment env;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const auto equals = entry.find('=');
    if (equals != entry.npos) env.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return env;
}

}  // namespace cohort::group
