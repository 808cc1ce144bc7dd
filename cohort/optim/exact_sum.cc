#include "cohort/optim/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cohort::optim {

void ExactSum::carry() {
  std::uint64_t over = 0;
  for (std::uint64_t& limb : limbs_) {
    limb += over;
    over = limb >> 32;
    limb &= 0xffffffffU;
  }
  infinite_ = infinite_ || over != 0;
  added_ = 0;
}

void ExactSum::add(ExactSum other) {
  other.carry();
  for (std::size_t i = 0; i < kLimbs; ++i) limbs_[i] += other.limbs_[i];
  infinite_ = infinite_ || other.infinite_;
  carry();
}

void ExactSum::add_limbs(std::span<const std::uint64_t> limbs, bool infinite) {
  ExactSum other;
  std::copy_n(limbs.begin(), kLimbs, other.limbs_.begin());
  other.infinite_ = infinite;
  add(other);
}

double ExactSum::value() const {
  if (infinite_) return std::numeric_limits<double>::infinity();
  ExactSum whole = *this;
  whole.carry();
  std::size_t top = kLimbs - 1;
  while (top > 2 && whole.limbs_[top] == 0) --top;
  unsigned __int128 leading = 0;
  for (std::size_t i = top + 1; i-- > top - 2;) leading = leading << 32 | whole.limbs_[i];
  constexpr int kLowest = -1074;
  return std::ldexp(static_cast<double>(leading), kLowest + 32 * static_cast<int>(top - 2));
}

void ExactSum::write(std::span<double> words) const {
  ExactSum whole = *this;
  whole.carry();
  for (std::size_t i = 0; i < kLimbs; ++i) words[i] = static_cast<double>(whole.limbs_[i]);
  words[kLimbs] = whole.infinite_ ? 1 : 0;
}

ExactSum ExactSum::read(std::span<const double> words) {
  ExactSum sum;
  for (std::size_t i = 0; i < kLimbs; ++i) sum.limbs_[i] = static_cast<std::uint64_t>(words[i]);
  sum.infinite_ = words[kLimbs] != 0;
  sum.carry();
  return sum;
}

}  // namespace cohort::optim
