#include "cohort/collective/operations/adasum.h"

#include <cmath>
#include <limits>
#include <vector>

#include "cohort/base/half.h"
#include "cohort/collective/kernels/kernels.h"

namespace cohort::collective {
namespace {

using Counts = std::vector<std::size_t>;

// Slices of `count` elements, as even as they can be.
Counts slices(std::size_t count, std::size_t ranks) {
  Counts each(ranks, count / ranks);
  for (std::size_t r = 0; r < count % ranks; ++r) ++each[r];
  return each;
}

// What arrived (or is about to leave) in the wire's type, and the same numbers in the type they are combined in.
template <class Wide>
void widen(const Piece& from, Wide* to) {
  const auto* half = static_cast<const std::uint16_t*>(from.data);
  for (std::size_t i = 0; i < from.count; ++i) to[i] = static_cast<Wide>(from.dtype == Dtype::f16 ? from_f16(half[i]) : from_bf16(half[i]));
}

template <class Wide>
void narrow(const Wide* from, const Piece& to) {
  auto* half = static_cast<std::uint16_t*>(to.data);
  for (std::size_t i = 0; i < to.count; ++i) {
    half[i] = to.dtype == Dtype::f16 ? to_f16(static_cast<float>(from[i])) : to_bf16(static_cast<float>(from[i]));
  }
}

struct Products {
  double dot = 0, left = 0, right = 0;  // a.b, |a|^2, |b|^2
};

template <class Wide>
Products products(const Wide* a, const Wide* b, std::size_t count) {
  Products p;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    p.dot += x * y, p.left += x * x, p.right += y * y;
  }
  return p;
}

double factor(double dot, double square) {
  static const double least = std::sqrt(std::numeric_limits<double>::min());
  return square < least ? 1.0 : 1.0 - dot / (2.0 * square);
}

// The rounds: row 0 of `rows` (one slice per rank) ends as the combination of all.
template <class Wide>
void combine(Communicator& comm, std::vector<Wide*> rows, std::size_t count, std::string_view name, std::optional<Deadline> deadline) {
  while (rows.size() > 1) {
    const std::size_t pairs = rows.size() / 2;
    std::vector<Products> sums(pairs);
    for (std::size_t p = 0; p < pairs; ++p) sums[p] = products(rows[2 * p], rows[2 * p + 1], count);
    comm.all_reduce({sums.data(), 3 * pairs, Dtype::f64}, Op::sum, {.name = name, .deadline = deadline});
    for (std::size_t p = 0; p < pairs; ++p) {
      Wide* const a = rows[2 * p];
      const Wide* const b = rows[2 * p + 1];
      const double of_a = factor(sums[p].dot, sums[p].left), of_b = factor(sums[p].dot, sums[p].right);
      for (std::size_t i = 0; i < count; ++i) a[i] = static_cast<Wide>(of_a * static_cast<double>(a[i]) + of_b * static_cast<double>(b[i]));
      rows[p] = a;
    }
    if (rows.size() % 2 == 1) rows[pairs] = rows.back();
    rows.resize(pairs + rows.size() % 2);
  }
}

template <class Wide>
void run(Communicator& comm, Piece data, const Call& call) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const Counts sent = slices(data.count, ranks);
  const std::size_t mine = sent[static_cast<std::size_t>(comm.rank().value)];
  const bool half = size_of(data.dtype) == 2;
  std::vector<std::byte> wire(ranks * mine * size_of(data.dtype));
  const Piece arrived{wire.data(), ranks * mine, data.dtype};
  comm.all_to_all(data, arrived, {.name = call.name, .deadline = call.deadline}, sent, Counts(ranks, mine));

  std::vector<Wide> wide(half ? ranks * mine : 0);
  if (half) widen(arrived, wide.data());
  Wide* const first = half ? wide.data() : reinterpret_cast<Wide*>(wire.data());
  std::vector<Wide*> rows;
  for (std::size_t r = 0; r < ranks; ++r) rows.push_back(first + r * mine);
  combine(comm, std::move(rows), mine, call.name, call.deadline);
  if (half) narrow(first, arrived.part(0, mine));
  comm.all_gather(arrived.part(0, mine), data, {.name = call.name, .deadline = call.deadline}, sent);
}

}  // namespace

void adasum(Communicator& comm, Piece data, const Call& call) {
  if (data.dtype > Dtype::f64) throw_failure(Kind::usage, "Adasum '{}' combines real numbers, not {}", call.name, name_of(data.dtype));
  if (data.device.kind != DeviceKind::cpu) throw_failure(Kind::usage, "Adasum '{}' works on memory of the CPU", call.name);
  if (call.prescale != 1.0) kernels().scale(data.dtype, data.data, data.count, call.prescale);
  if (comm.size() > 1) {
    if (data.dtype == Dtype::f64)
      run<double>(comm, data, call);
    else
      run<float>(comm, data, call);
  }
  if (call.postscale != 1.0) kernels().scale(data.dtype, data.data, data.count, call.postscale);
}

}  // namespace cohort::collective
