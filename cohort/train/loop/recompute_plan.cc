#include "cohort/train/loop/recompute_plan.h"

#include <fmt/ranges.h>

#include <set>

#include "cohort/base/text.h"
#include "cohort/job/run_on_all.h"
#include "cohort/nn/activation_bytes.h"
#include "cohort/nn/recompute.h"
#include "cohort/plan/recompute_choice.h"

namespace cohort::train {
namespace {

// The bytes stay 0 unless they matter: measuring costs a forward.
std::vector<BlockBytes> blocks_of(collective::Communicator& comm, const TrainConfig& config, const nn::Model& model, bool measure) {
  std::vector<BlockBytes> blocks;
  for (const auto& block : model.blocks()) blocks.push_back({.name = block.name});
  if (!measure) return blocks;
  std::vector<double> bytes;
  for (const auto& [kept, output] : nn::measure_activations(model, model.example(config.data.batch))) {
    bytes.push_back(static_cast<double>(kept));
    bytes.push_back(static_cast<double>(output));
  }
  comm.all_reduce(collective::piece(std::span<double>(bytes)), collective::Op::max, {.name = "bytes of activations"});
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    blocks[b].kept = static_cast<std::size_t>(bytes[2 * b]);
    blocks[b].output = static_cast<std::size_t>(bytes[2 * b + 1]);
  }
  return blocks;
}

}  // namespace

RecomputePlan plan_recompute(collective::Communicator& comm, const TrainConfig& config, const nn::Model& model) {
  const RecomputeChoice choice = RecomputeChoice::parse(config.recompute);
  if (choice.how == RecomputeChoice::How::none) return {};
  const bool measured = choice.how == RecomputeChoice::How::until_fits;
  const auto blocks = blocks_of(comm, config, model, measured);
  std::vector<bool> chosen;
  job::run_on_all(comm, "which blocks to recompute", [&] { chosen = choose(choice, blocks); });
  std::set<std::string> names;
  std::vector<std::string_view> listed;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (!chosen[b]) continue;
    names.insert(blocks[b].name);
    listed.emplace_back(blocks[b].name);
  }
  RecomputePlan result{.wrapper = {}, .why = fmt::format("recomputes {} of {} blocks", listed.size(), blocks.size())};
  if (!listed.empty()) result.why += fmt::format(" ({})", fmt::join(listed, ", "));
  if (measured)
    result.why += fmt::format(": activations of a batch take {} instead of {}", format_bytes(activation_peak(blocks, chosen)),
                              format_bytes(activation_peak(blocks, std::vector<bool>(blocks.size()))));
  if (names.empty()) return result;
  result.wrapper = [names = std::move(names)](const nn::Block& block, const at::Tensor& x) {
    return names.contains(block.name) ? nn::recompute(block, x) : block.forward(x);
  };
  return result;
}

}  // namespace cohort::train
