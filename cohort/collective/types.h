// The nouns of a collective: what is moved (Piece, of base), how it is combined (Op), and how the caller wants it done (Call).
// Threads: values, any. To add an element type: base/piece.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cohort/base/deadline.h"
#include "cohort/base/piece.h"

namespace cohort::collective {

using cohort::Device;
using cohort::Dtype;
using cohort::dtype_named;
using cohort::kDtypeOf;
using cohort::kDtypes;
using cohort::name_of;
using cohort::Piece;
using cohort::piece;
using cohort::size_of;

enum class Op : std::uint8_t { sum, average, min, max, product };
inline constexpr int kOps = 5;
enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
  split,
  send,
  recv
};
inline constexpr int kCollectives = 12;

std::string_view name_of(Op op);
std::string_view name_of(Collective collective);
std::optional<Op> op_named(std::string_view name);
std::optional<Collective> collective_named(std::string_view name);
// bool knows sum and max (or), product and min (and), not average.
bool reducible(Dtype dtype, Op op);

// How the caller wants one operation done. The name is what errors and traces show.
struct Call {
  std::string_view name{};
  std::optional<Deadline> deadline{};  // none: the communicator's own timeout, from the moment of the call
  double prescale = 1.0;               // every input element is multiplied by it before the reduction, rounded to its type
  double postscale = 1.0;              // and the result afterwards
  std::string_view algorithm{};        // a row's name; empty: the selector chooses
  void* stream = nullptr;              // CUDA only
};

}  // namespace cohort::collective
