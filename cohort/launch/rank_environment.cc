#include "cohort/launch/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace cohort::launch {

CrossRank cross_rank(const std::vector<int>& ranks_per_host, int host, int local_rank) {
  CrossRank c{0, 0};
  for (std::size_t h = 0; h < ranks_per_host.size(); ++h) {
    if (ranks_per_host[h] <= local_rank) continue;
    if (static_cast<int>(h) < host) ++c.rank;
    ++c.size;
  }
  return c;
}

group::Environment rank_environment(const group::Environment& inherited, const RankSetting& s) {
  group::Environment env = inherited;
  const auto set = [&](std::string_view name, const auto& value) { env.insert_or_assign(std::string(name), fmt::format("{}", value)); };

  const std::vector<int> hosts = s.ranks_per_host.empty() ? std::vector{s.size} : s.ranks_per_host;
  const int local_rank = s.rank - s.first, local_size = hosts.at(static_cast<std::size_t>(s.host));
  const CrossRank cross = cross_rank(hosts, s.host, local_rank);

  // Left over from a launcher around this one, they would lead a rank into another job.
  for (const std::string_view stale : {"COHORT_PLACE", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
                                       "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_ELASTIC", "COHORT_HOST",
                                       "COHORT_INTERFACE", "COHORT_ELASTIC", "COHORT_SHARDS", "COHORT_LAUNCH_ID"})
    env.erase(std::string(stale));

  for (const std::string_view prefix : {"COHORT_", "HOROVOD_"}) {
    set(fmt::format("{}RANK", prefix), s.rank);
    set(fmt::format("{}SIZE", prefix), s.size);
    set(fmt::format("{}LOCAL_RANK", prefix), local_rank);
    set(fmt::format("{}LOCAL_SIZE", prefix), local_size);
  }
  set("COHORT_JOB", s.job);
  if (!s.elastic.empty()) {
    set("COHORT_ELASTIC", s.elastic);
    set("HOROVOD_ELASTIC", 1);
  }
  if (s.shards) set("COHORT_SHARDS", s.shards);
  if (!s.launch.empty()) set("COHORT_LAUNCH_ID", s.launch);
  if (!s.host_name.empty()) set("COHORT_HOST", s.host_name);
  if (!s.interface.empty()) set("COHORT_INTERFACE", s.interface);
  set("COHORT_RENDEZVOUS", s.rendezvous);
  set("COHORT_SECRET_FILE", s.secret_file);
  set("COHORT_START_TIMEOUT", s.start_timeout);
  set("COHORT_TLS", s.tls);
  set("COHORT_THREADS", s.threads);
  if (!s.log_level.empty()) set("COHORT_LOG", s.log_level);
  if (s.streams >= 0) set("COHORT_STREAMS", s.streams);
  set("HOROVOD_CROSS_RANK", cross.rank);
  set("HOROVOD_CROSS_SIZE", cross.size);
  if (!s.elastic.empty())  // they change while a worker lives; Horovod's programs ask hvd.rank()
    for (const char* word : {"RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"})
      env.erase(fmt::format("HOROVOD_{}", word));
  set("HOROVOD_HOSTNAME", s.host_name.empty() ? "localhost" : s.host_name);

  set("RANK", s.rank);
  set("WORLD_SIZE", s.size);
  set("LOCAL_RANK", local_rank);
  set("LOCAL_WORLD_SIZE", local_size);
  set("GROUP_RANK", s.host);
  set("GROUP_WORLD_SIZE", hosts.size());
  set("ROLE_RANK", s.rank);
  set("ROLE_WORLD_SIZE", s.size);
  set("ROLE_NAME", s.role);
  set("MASTER_ADDR", s.master_addr);
  set("MASTER_PORT", s.master_port);
  set("TORCHELASTIC_RUN_ID", s.job);
  set("TORCHELASTIC_RESTART_COUNT", 0);
  set("TORCHELASTIC_MAX_RESTARTS", 0);

  if (s.threads_given || !env.contains("OMP_NUM_THREADS")) set("OMP_NUM_THREADS", s.threads);
  env.emplace("PYTHONUNBUFFERED", "1");  // a rank writes into a pipe; its lines should appear when they are printed
  return env;
}

bool is_host_local(std::string_view variable) {
  constexpr std::array<std::string_view, 13> kNames{"HOME", "USER",   "LOGNAME", "SHELL",   "HOSTNAME", "TMPDIR",    "MAIL",
                                                    "PWD",  "OLDPWD", "SHLVL",   "DISPLAY", "_",        "COHORT_TTY"};
  return std::find(kNames.begin(), kNames.end(), variable) != kNames.end() || variable.starts_with("SSH_") ||
         variable.starts_with("XDG_") || variable.starts_with("DBUS_") || variable.starts_with("BASH_FUNC_");
}

std::vector<std::string> environ_strings(const group::Environment& environment) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) entries.push_back(fmt::format("{}={}", name, value));
  return entries;
}

}  // namespace cohort::launch
