// `cohort doctor`: what this machine has, what will be slow or fail on it, and what to do about that.
// A check inspects one thing and appends findings; judgements that depend only on numbers are pure functions with their own tests.
// Threads: the main one. Failure: none; a check that fails to inspect says so in a finding. Every check is bounded in time.
// To add a check: a function in the doctor/*.cc it belongs to, a row in all_checks().
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::bench::doctor {

enum class Level { ok, note, warn, fail };  // note: good to know; warn: slow or surprising; fail: jobs will not run
std::string_view level_name(Level level);   // "OK", "NOTE", "WARN", "FAIL"

struct Finding {
  Level level = Level::ok;
  std::string topic;   // one word
  std::string text;    // what is
  std::string advice;  // what to do; empty when nothing
};
using Findings = std::vector<Finding>;

struct HealthCheck {
  std::string_view topic;
  void (*look)(Findings& findings);
};
std::span<const HealthCheck> all_checks();
Findings examine();  // runs them all; one that throws becomes a warning of its topic

std::string format_finding(const Finding& finding);  // with its advice on a second line
std::string format_summary(const Findings& findings);
int exit_status(const Findings& findings);  // 1 when anything failed, else 0

// Judgements.
Finding judge_cores(int online, int allowed, std::optional<double> quota);
Finding judge_memory(std::uint64_t total, std::uint64_t available, std::optional<std::uint64_t> group_limit);
Finding judge_open_files(std::uint64_t soft, std::uint64_t hard);
Finding judge_processes(std::uint64_t soft);
Finding judge_shm_folder(std::uint64_t bytes);
Finding judge_load(double one_minute, int cores);
Finding judge_torch(std::string_view python, std::string_view version, bool cxx11_abi, std::string_view cuda);
Finding judge_worker(std::string_view path, bool starts, std::string_view last_line);
Finding judge_kernels(bool built, bool driver_sees, int seen);  // of GPUs; driver_sees: nvidia-smi finds one; seen: by this process
Finding judge_congestion(std::string_view current, std::string_view available);

double load_now();  // over the last minute; 0 when unknown
// One file of a setting, trimmed; empty when it cannot be read.
std::string setting_file(const std::string& path);

// The checks, by file.
void look_at_processor(Findings& findings);  // machine.cc
void look_at_topology(Findings& findings);
void look_at_memory(Findings& findings);
void look_at_load(Findings& findings);
void look_at_clock(Findings& findings);
void look_at_shared_memory(Findings& findings);  // sharing.cc
void look_at_limits(Findings& findings);
void look_at_scratch(Findings& findings);
void look_at_network(Findings& findings);  // network.cc
void look_at_congestion(Findings& findings);
void look_at_torch(Findings& findings);  // software.cc
void look_at_worker(Findings& findings);
void look_at_mpi(Findings& findings);
void look_at_backends(Findings& findings);
void look_at_gpu(Findings& findings);
void look_at_calibration(Findings& findings);

}  // namespace cohort::bench::doctor
