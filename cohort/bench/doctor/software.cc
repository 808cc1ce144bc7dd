// torch, Open MPI, GPUs, and the measured constants of the cost model.
#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/bench/doctor/doctor.h"
#include "cohort/bench/process.h"
#include "cohort/bench/programs.h"
#include "cohort/collective/cost/calibration_file.h"
#include "cohort/collective/cost/cost.h"
#include "cohort/collective/plugin/backend.h"
#include "cohort/cuda/runtime.h"
#include "cohort/launch/worker_program.h"

namespace cohort::bench::doctor {
namespace {

constexpr auto kImportLimit = 60s;  // torch from a cold network disk
constexpr auto kToolLimit = 15s;

std::string first_line(const std::string& text) { return std::string(trim(text.substr(0, text.find('\n')))); }

// What a tool prints, or empty when it is absent or fails.
std::string ask(const std::vector<std::string>& argv) {
  if (bench::find_executable(argv.at(0)).empty()) return {};
  const auto outcome = bench::run_process({argv, {}}, Deadline::in(kToolLimit));
  return outcome.ok() ? outcome.out : std::string{};
}

}  // namespace

Finding judge_torch(std::string_view python, std::string_view version, bool cxx11_abi, std::string_view cuda) {
  const auto text = fmt::format("{} in {}, C++11 ABI {}, {}", version, python, cxx11_abi ? 1 : 0,
                                cuda.empty() ? "CPU only" : fmt::format("CUDA {}", cuda));
  const auto parts = split(version, '.');
  const bool numbers = parts.size() >= 2 && !parts[0].empty() && !parts[1].empty() &&
                       parts[0].find_first_not_of("0123456789") == parts[0].npos &&
                       parts[1].find_first_not_of("0123456789") == parts[1].npos;
  const bool fresh = numbers && (parse_int(parts[0]) > 2 || (parse_int(parts[0]) == 2 && parse_int(parts[1]) >= 11));
  if (!fresh) return {Level::warn, "torch", text, "training needs 2.11 or newer; collectives and `cohort run` work without torch"};
  if (!cxx11_abi)
    return {Level::warn, "torch", text, "C++ programs built here will not link with this wheel: install one with the C++11 ABI"};
  return {Level::ok, "torch", text, ""};
}

void look_at_torch(Findings& findings) {
  const auto python = bench::python_with_torch();
  if (python.empty())
    return findings.push_back({Level::note, "torch", "no Python with torch was found",
                               "collectives and `cohort run` work without; `make build` installs one into .venv, or set COHORT_PYTHON"});
  const auto script =
      "import json, torch; print(json.dumps([torch.__version__, torch._C._GLIBCXX_USE_CXX11_ABI, torch.version.cuda or '']))";
  const auto outcome = bench::run_process({{python, "-W", "ignore", "-c", script}, {}}, Deadline::in(kImportLimit));
  const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
  if (!outcome.ok() || !json.is_array() || json.size() != 3)
    return findings.push_back(
        {Level::warn, "torch",
         fmt::format("{} has torch but cannot import it: {}", python, outcome.late ? "it takes too long" : outcome.last_line()),
         "reinstall it in a fresh virtual environment"});
  findings.push_back(judge_torch(python, json[0].get<std::string>(), json[1].get<bool>(), json[2].get<std::string>()));
}

Finding judge_worker(std::string_view path, bool starts, std::string_view last_line) {
  if (starts) return {Level::ok, "worker", fmt::format("{} starts", path), ""};
  return {Level::fail, "worker", fmt::format("{} does not start: {}", path, last_line.empty() ? "it printed nothing" : last_line),
          "`cohort train`, `plan`, `verify` and `predict` need it: build and install again with the torch that is here now"};
}

void look_at_worker(Findings& findings) {
  std::string worker;
  try {
    worker = launch::find_worker();
  } catch (const Failure& failure) {
    return findings.push_back({Level::note, "worker", failure.what(), "only `cohort train`, `plan`, `verify` and `predict` need it"});
  }
  const auto outcome = bench::run_process({{worker, "--help"}, {}}, Deadline::in(kImportLimit));
  findings.push_back(judge_worker(worker, outcome.ok(), outcome.late ? "it takes too long" : outcome.last_line()));
}

void look_at_mpi(Findings& findings) {
  const auto version = first_line(ask({"mpirun", "--version"}));
  if (version.empty())
    return findings.push_back({Level::note, "mpi", "no mpirun",
                               "only needed for `backend: mpi` and `cohort bench --against openmpi` (Debian: openmpi-bin libopenmpi-dev)"});
  const bool built = !bench::bundled_program("openmpi_bench").empty();
  findings.push_back({built ? Level::ok : Level::note, "mpi", version,
                      built ? "" : "openmpi_bench is not built: install libopenmpi-dev and build again to compare with it"});
}

void look_at_backends(Findings& findings) {
  const char* const folder = std::getenv("COHORT_BACKENDS");
  for (const auto& row : collective::backend_rows()) {
    const auto path = collective::find_backend(row.name, folder == nullptr ? "" : folder);
    const auto word = fmt::format("backend: {}", row.name);
    if (!path.empty())
      findings.push_back({Level::ok, "backends", fmt::format("{} is there: {}", word, path), ""});
    else
      findings.push_back({Level::note, "backends", fmt::format("{} is not there", word),
                          fmt::format("it needs {}; everything works without it", row.needs)});
  }
}

Finding judge_kernels(bool built, bool driver_sees, int seen) {
  if (!built)
    return {driver_sees ? Level::warn : Level::note, "cuda", "this build has no CUDA kernels: nvcc was not there when it was made",
            driver_sees ? "for device=cuda install the CUDA toolkit and build again; sync=zero(stage=2, offload=host) works without" : ""};
  if (seen > 0) return {Level::ok, "cuda", fmt::format("this build has CUDA kernels and sees {} GPU{}", seen, seen == 1 ? "" : "s"), ""};
  if (!driver_sees) return {Level::ok, "cuda", "this build has CUDA kernels; there is no GPU to run them", ""};
  return {Level::warn, "cuda", "nvidia-smi finds a GPU, and this process sees none",
          "its driver is older than CUDA 13 wants, or CUDA_VISIBLE_DEVICES hides it"};
}

void look_at_gpu(Findings& findings) {
  const auto gpus = ask({"nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"});
  const auto lines = split(trim(gpus), '\n');
  for (const auto line : lines) findings.push_back({Level::ok, "gpu", std::string(trim(line)), ""});
  if (lines.empty()) findings.push_back({Level::ok, "gpu", "none (nvidia-smi finds no device): jobs run on the processor", ""});
  auto nvcc = ask({"nvcc", "--version"});
  findings.push_back(judge_kernels(cuda::built(), !lines.empty(), cuda::devices()));
  if (const auto at = nvcc.find("release "); at != nvcc.npos) findings.push_back({Level::ok, "nvcc", first_line(nvcc.substr(at)), ""});
}

void look_at_calibration(Findings& findings) {
  const char* const named = std::getenv("COHORT_CALIBRATION");
  const std::string wish = named == nullptr || *named == '\0' ? collective::usual_calibration_folder() : named;
  if (const auto used = collective::find_calibration(wish, "shm"); !used.empty())
    return findings.push_back({Level::ok, "calibration", fmt::format("{}: {}", used, collective::Calibration::load(used).text()), ""});
  findings.push_back({Level::note, "calibration", "built-in cost constants choose the algorithms",
                      wish == "none" ? "" : "`cohort bench --calibrate` measures this machine's"});
}

}  // namespace cohort::bench::doctor
