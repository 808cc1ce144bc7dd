#include "cohort/engine/tensor_sums.h"

#include <algorithm>

#include "cohort/collective/plans/plan.h"
#include "cohort/optim/measure.h"

namespace cohort::engine {
namespace {

// Elements: where all ranks hold all of a tensor, a smaller one is measured by one of them; its part would not be worth its words.
constexpr std::size_t kShared = 1 << 16;

// Whether the tensor lies on both sides of an edge between ranks.
bool cut_through(const Bucket& bucket, const sync::Member& m) {
  std::size_t edge = 0;
  for (const std::size_t count : bucket.counts()) {
    edge += count;
    if (edge > m.first && edge < m.first + m.count) return true;
  }
  return false;
}

}  // namespace

TensorSums::TensorSums(const optim::Optimizer* rule, const Buckets& buckets, bool together, std::size_t parameters)
    : rule_(rule), needs_(rule == nullptr ? optim::Needs{} : rule->needs()) {
  if (needs_.rounds == 0) return;
  tensors_.resize(parameters);
  for (const auto& b : buckets)
    for (const auto& m : b->members()) tensors_[m.order] = tensor_of(*b, m, together);
  for (Tensor& t : tensors_) {
    t.word = words_;
    words_ += static_cast<std::size_t>(needs_.per_tensor) * (t.shared ? optim::ExactSum::kWords : 1);
  }
}

TensorSums::Tensor TensorSums::tensor_of(const Bucket& bucket, const sync::Member& m, bool together) const {
  const std::size_t owned = bucket.owned(m).count;
  const sync::Holders holders = together ? m.same_part : sync::Holders{};
  const int turn = (holders.me + static_cast<int>(m.order)) % holders.count;  // small tensors do not all fall to one rank
  const bool in_parts = m.is_box || cut_through(bucket, m), one_measures = holders.count == 1 || owned < kShared;
  if (bucket.placement().sharded() || one_measures || needs_.grain == optim::Grain::tensor)
    return {&bucket, &m, 0, turn == 0 ? owned : 0, in_parts};
  const auto part = collective::part_of(owned, holders.count, turn, optim::kMeasureBlock);
  return {&bucket, &m, part.first, part.size(), true};
}

void TensorSums::measure(int round, const optim::StepInfo& step, std::span<const double> known, std::span<double> words) const {
  const auto each = static_cast<std::size_t>(needs_.per_tensor);
  std::vector<optim::ExactSum> sums(each);
  std::vector<void*> state, part_state;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& t = tensors_[i];
    if (t.count == 0) continue;
    std::fill(sums.begin(), sums.end(), optim::ExactSum{});
    optim::Slice slice = optim::part_of(t.bucket->slice(*t.member, state), t.first, t.count, part_state);
    if (round > 0) slice.sums = known.subspan(i * needs_.sums(), each * static_cast<std::size_t>(round));
    rule_->measure(round, slice, step, sums);
    for (std::size_t k = 0; k < each; ++k) {
      if (t.shared)
        sums[k].write(words.subspan(t.word + k * optim::ExactSum::kWords, optim::ExactSum::kWords));
      else
        words[t.word + k] = sums[k].value();
    }
  }
}

void TensorSums::read(int round, std::span<const double> words, std::vector<double>& known) const {
  const auto each = static_cast<std::size_t>(needs_.per_tensor);
  known.resize(tensors_.size() * needs_.sums());
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    for (std::size_t k = 0; k < each; ++k) {
      const Tensor& t = tensors_[i];
      known[i * needs_.sums() + static_cast<std::size_t>(round) * each + k] =
          t.shared ? optim::ExactSum::read(words.subspan(t.word + k * optim::ExactSum::kWords, optim::ExactSum::kWords)).value()
                   : words[t.word + k];
    }
}

}  // namespace cohort::engine
