#include "cohort/train/loop/same_data.h"

#include <fmt/format.h>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/job/run_on_all.h"

namespace cohort::train {
namespace {

constexpr char kBetween = '\f';  // the training set from the test set: no fingerprint has it

}  // namespace

std::vector<std::string> gather_fingerprints(collective::Communicator& comm, const ModelAndData& m) {
  std::string mine;
  job::run_on_all(comm, "fingerprint of the data",
                  [&] { mine = data::to_text(m.train->fingerprint()) + kBetween + (m.test ? data::to_text(m.test->fingerprint()) : ""); });
  return job::gather_texts(comm, mine, "fingerprint of the data");
}

std::string difference_of_data(const std::string& first, const std::string& other, int other_rank, const TrainConfig& config) {
  const auto ours = split(first, kBetween), theirs = split(other, kBetween);
  const std::string names[] = {fmt::format("data.train '{}'", config.data.train), fmt::format("data.test '{}'", config.data.test)};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto set = [&](const auto& sets) { return data::fingerprint_of_text(i < sets.size() ? sets[i] : std::string_view{}); };
    const auto difference = data::difference(set(ours), "on rank 0", set(theirs), fmt::format("on rank {}", other_rank));
    if (!difference.empty()) return fmt::format("{}: {}", names[i], difference);
  }
  return "";
}

void check_same_data(collective::Communicator& comm, const ModelAndData& m, const TrainConfig& config) {
  const auto texts = gather_fingerprints(comm, m);
  for (std::size_t r = 1; r < texts.size(); ++r) {
    const auto differs = difference_of_data(texts[0], texts[r], static_cast<int>(r), config);
    if (!differs.empty())
      throw_failure(Kind::usage, "the data differ: {}; give every rank the same files, and do not change them while ranks start", differs);
  }
}

}  // namespace cohort::train
