// Where a rank's time goes, step by step: computing, communicating, waiting, or none of these (other).
//   PhaseClock clock;
//   { auto in = clock.in(Phase::compute);  forward();  { auto also = clock.in(Phase::wait); next_batch(); }  backward(); }
//   PhaseSeconds step = clock.end_step();          // this step; clock.total() is the sum of all
// Every moment belongs to one phase: an inner phase takes its time from the outer one. A change of phase is one reading of the clock (a
// few tens of nanoseconds), so a lane may switch at every bucket.
// Owner and thread: one per thread that is measured. Failure: none.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace cohort::observe {

enum class Phase : std::uint8_t { compute, communicate, wait, other };
inline constexpr std::size_t kPhases = 4;
inline constexpr std::array<std::string_view, kPhases> kPhaseNames{"compute", "communicate", "wait", "other"};

// Seconds by phase. Plain numbers in a row, so that ranks can gather them as they are.
struct PhaseSeconds {
  std::array<double, kPhases> seconds{};
  double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  double sum() const;
  PhaseSeconds& operator+=(const PhaseSeconds& more);
  std::array<double, kPhases> shares() const;  // of the sum; all zero when nothing was measured
};

std::int64_t steady_nanoseconds();

class PhaseClock {
 public:
  using Now = std::int64_t (*)();
  explicit PhaseClock(Now now = steady_nanoseconds) : now_(now), since_(now()) {}

  class Scope {
   public:
    Scope(PhaseClock& clock, Phase phase) : clock_(clock), before_(clock.current_) { clock_.change(phase); }
    ~Scope() { clock_.change(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseClock& clock_;
    Phase before_;
  };
  [[nodiscard]] Scope in(Phase phase) { return {*this, phase}; }

  PhaseSeconds end_step();     // what was measured since the last end_step(), or since the beginning; also inside a scope
  PhaseSeconds total() const;  // of all ended steps
  std::uint64_t steps() const { return steps_; }

 private:
  void change(Phase to) {
    const auto now = now_();
    step_[static_cast<std::size_t>(current_)] += now - since_;
    since_ = now;
    current_ = to;
  }

  Now now_;
  std::int64_t since_;
  Phase current_ = Phase::other;
  std::array<std::int64_t, kPhases> step_{};   // nanoseconds
  std::array<std::int64_t, kPhases> total_{};  // nanoseconds: sums stay exact over days
  std::uint64_t steps_ = 0;
};

}  // namespace cohort::observe
