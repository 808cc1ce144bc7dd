// Which blocks of a model are recomputed: the setting `recompute`.
//   none | every(2): the second, fourth .. | every(1): all | names(h.3, h.7) | until_fits(2GiB): as few as it takes
// until_fits is about activations: what forward keeps for backward, with what recomputing a block needs meanwhile. No torch here:
// launchers check the setting, and a plan can ask without running anything. Owner: values. Threads: any.
// Failure: Kind::usage quoting the setting.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

inline constexpr std::string_view kRecomputeForms = "none, every(2), names(block, block), until_fits(2GiB)";

struct RecomputeChoice {
  enum class How { none, every, names, until_fits };
  How how = How::none;
  int every = 0;
  std::vector<std::string> names;
  std::size_t bytes = 0;

  static RecomputeChoice parse(std::string_view text);
};

// Of one block, for one forward: kept for backward, with its output; and its output alone, which is kept in any case.
struct BlockBytes {
  std::string name;
  std::size_t kept = 0, output = 0;
};

// Activations at their peak: what all blocks keep, and the inner results of the largest block that is run again.
std::size_t activation_peak(const std::vector<BlockBytes>& blocks, const std::vector<bool>& recomputed);

// By block: is it recomputed? until_fits takes the block that saves most, then the next, until the peak is within its bytes.
// The bytes of blocks are read by until_fits only.
std::vector<bool> choose(const RecomputeChoice& choice, const std::vector<BlockBytes>& blocks);

}  // namespace cohort
