// How a step is decided: one small all-reduce, the vote; where it makes a difference a second one; and one for every further round of sums
// that the rule needs of whole tensors.
#include <algorithm>
#include <cmath>

#include "cohort/base/trace.h"
#include "cohort/engine/engine.h"
#include "cohort/engine/tensor_sums.h"
#include "cohort/optim/measure.h"

namespace cohort::engine {

// All finite? Whose gradients are missing? Every rank alive? The same answer on every rank.
Verdict Engine::vote(std::span<const double> sums, const std::vector<BucketReport>& reports, const TensorSums& tensor_sums,
                     std::vector<double>& known) {
  const Span span{"vote"};
  Verdict verdict;
  bool finite = true;
  optim::ExactSum before, after;
  for (const BucketReport& r : reports) {
    verdict.seconds.reduce += r.seconds.reduce;
    verdict.seconds.wait += r.seconds.wait;
    finite = finite && (r.finite || options_.early_update);
    before.add(r.before);
    after.add(r.after);
  }
  std::vector<double> values(sums.begin(), sums.end());
  const auto& touched = arrivals_.touched();
  const auto lacking = static_cast<double>(std::count(touched.begin(), touched.end(), false));
  values.insert(values.end(), {finite ? 0.0 : 1.0, before.value(), lacking});
  const std::size_t words = values.size(), of_tensors = words + optim::ExactSum::kWords;
  values.resize(of_tensors + tensor_sums.words());  // each rank measured a part
  after.write(std::span(values).subspan(words, optim::ExactSum::kWords));
  if (tensor_sums.rounds() > 0) tensor_sums.measure(0, step_, {}, std::span(values).subspan(of_tensors));
  comm_.all_reduce(collective::piece(std::span(values)), collective::Op::sum, {.name = "the step's vote"});
  verdict.squared_after = optim::ExactSum::read(std::span(values).subspan(words, optim::ExactSum::kWords)).value();
  if (tensor_sums.rounds() > 0) tensor_sums.read(0, std::span(values).subspan(of_tensors), known);
  verdict.committed = values[sums.size()] == 0;
  if (options_.clip_norm > 0)  // doubles beyond 1e154: no norm to clip by
    verdict.committed = verdict.committed && std::isfinite(verdict.squared_after);
  verdict.squared_before = values[sums.size() + 1] / comm_.size();
  if (options_.clip_norm > 0 && verdict.committed)  // of the gradient as the rule sees it
    verdict.clip = optim::clip_coefficient(verdict.squared_after * step_.grad_scale * step_.grad_scale, options_.clip_norm);
  verdict.sums.assign(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(sums.size()));
  verdict.sums.push_back(values[words - 1]);
  return verdict;
}

// Gradients are clipped, and nothing has changed. After the last of these rounds a rank needs no other one for its update.
void Engine::measure_rounds(const TensorSums& sums) {
  for (int round = 1; round < sums.rounds(); ++round) {
    const Span span{"measure tensors"};
    std::vector<double> words(sums.words());
    sums.measure(round, decided_step(), decision_.sums, words);
    comm_.all_reduce(collective::piece(std::span(words)), collective::Op::sum, {.name = "sums of the rule"});
    sums.read(round, words, decision_.sums);
  }
}

// Which parameters got no gradient on any rank. Asked only when some rank lacks some and it makes a difference.
std::vector<bool> Engine::find_missing(double anywhere) {
  if (anywhere == 0 || !rule_ || options_.early_update) return {};
  const auto& touched = arrivals_.touched();
  std::vector<std::int32_t> came(touched.begin(), touched.end());
  comm_.all_reduce(collective::piece(std::span(came)), collective::Op::sum, {.name = "which parameters got gradients"});
  std::vector<bool> missing;
  for (const auto n : came) missing.push_back(n == 0);
  return missing;
}

}  // namespace cohort::engine
