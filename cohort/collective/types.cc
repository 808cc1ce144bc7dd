#include "cohort/collective/types.h"

#include <array>

namespace cohort::collective {
namespace {

constexpr std::array<std::string_view, kOps> kOpNames{"sum", "average", "min", "max", "product"};
constexpr std::array<std::string_view, 12> kCollectiveNames{"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
                                                            "scatter",    "all_to_all",     "barrier",    "split",     "send",   "recv"};
static_assert(kCollectiveNames.size() == static_cast<std::size_t>(Collective::recv) + 1);

// Values that came over a wire may lie outside the table: they have no name, and print as such.
template <class Enum, std::size_t N>
std::string_view name_in(const std::array<std::string_view, N>& names, Enum value) {
  const auto i = static_cast<std::size_t>(value);
  return i < N ? names[i] : "unknown";
}

template <class Enum, std::size_t N>
std::optional<Enum> value_in(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Op op) { return name_in(kOpNames, op); }
std::string_view name_of(Collective collective) { return name_in(kCollectiveNames, collective); }

std::optional<Op> op_named(std::string_view name) { return value_in<Op>(kOpNames, name); }
std::optional<Collective> collective_named(std::string_view name) { return value_in<Collective>(kCollectiveNames, name); }

bool reducible(Dtype dtype, Op op) { return dtype != Dtype::boolean || op != Op::average; }

}  // namespace cohort::collective
