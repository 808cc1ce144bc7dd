#include "cohort/bench/operation.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/half.h"
#include "cohort/collective/kernels/kernels.h"

namespace cohort::bench {
namespace {

using collective::Collective;
using collective::Dtype;
using collective::Piece;

// The two 16-bit floats as types that measure.h can fill and read.
struct F16 {
  std::uint16_t bits;
  F16() = default;
  explicit F16(std::int64_t value) : bits(to_f16(static_cast<float>(value))) {}
  explicit operator double() const { return static_cast<double>(from_f16(bits)); }
};
struct Bf16 {
  std::uint16_t bits;
  Bf16() = default;
  explicit Bf16(std::int64_t value) : bits(to_bf16(static_cast<float>(value))) {}
  explicit operator double() const { return static_cast<double>(from_bf16(bits)); }
};

template <class Body>
auto with_type(Dtype dtype, Body body) {
  switch (dtype) {
    case Dtype::f16: return body(F16{});
    case Dtype::bf16: return body(Bf16{});
    case Dtype::f32: return body(float{});
    case Dtype::f64: return body(double{});
    case Dtype::i8: return body(std::int8_t{});
    case Dtype::u8: return body(std::uint8_t{});
    case Dtype::i32: return body(std::int32_t{});
    case Dtype::i64: return body(std::int64_t{});
    case Dtype::boolean: return body(bool{});
    case Dtype::i16: return body(std::int16_t{});
  }
  throw_failure(Kind::bug, "unknown dtype");
}

}  // namespace

Operation::Operation(collective::Communicator& world, const BenchOptions& o, std::size_t bytes)
    : world_(world),
      dtype_(collective::dtype_named(o.dtype).value()),
      op_(collective::op_named(o.op).value()),
      collective_(collective::collective_named(o.collectives.at(0)).value()),
      collective_name_(o.collectives.at(0)),
      op_name_(o.op),
      algorithm_(o.algorithms.empty() ? "" : o.algorithms.at(0)) {
  shape_ = {collective_name_, op_name_, world.rank().value, world.size()};
  shape_.logical = dtype_ == Dtype::boolean;
  shape_.whole = measure::whole_elements(collective_name_, bytes, collective::size_of(dtype_), world.size());
  call_.algorithm = algorithm_;
  const bool shared = o.buffers.at(0) == "allocate";
  in_ = memory(shape_.in_count(), shared);
  out_ = shape_.in_place() ? in_ : memory(shape_.out_count(), shared);
  updated_ = shared && in_.count == shape_.whole ? in_ : memory(shape_.whole, true);
}

Piece Operation::memory(std::size_t count, bool shared) {
  const std::size_t bytes = std::max<std::size_t>(1, count * collective::size_of(dtype_));
  Piece piece{nullptr, count, dtype_};
  if (shared) {
    regions_.push_back(world_.allocate(bytes));
    piece.data = regions_.back().data();
  } else {
    owned_.emplace_back(std::aligned_alloc(kPageBytes, round_up(bytes, kPageBytes)), std::free);
    if (owned_.back() == nullptr) throw std::bad_alloc();
    piece.data = owned_.back().get();
    std::memset(piece.data, 0, bytes);
  }
  return piece;
}

void Operation::fill() {
  with_type(dtype_, [&](auto type) { measure::fill_input(shape_, static_cast<decltype(type)*>(in_.data)); });
}

void Operation::clear() { std::memset(in_.data, 0, in_.bytes()); }

measure::Verdict Operation::check() const {
  return with_type(dtype_, [&](auto type) { return measure::check_output(shape_, static_cast<const decltype(type)*>(out_.data)); });
}

void Operation::update(Update how) {
  const std::size_t words = updated_.bytes() / sizeof(float);
  if (how == Update::scale) return collective::kernels().scale(Dtype::f32, updated_.data, words, 0.5);
  const void* const sources[] = {updated_.data, updated_.data};
  void* const target[] = {updated_.data};
  collective::kernels().reduce({Dtype::f32, collective::Op::sum}, {sources, 2}, {target, 1}, words);
}

void Operation::run() {
  constexpr Rank kRoot{0};
  switch (collective_) {
    case Collective::all_reduce: return world_.all_reduce(in_, op_, call_);
    case Collective::reduce_scatter: return world_.reduce_scatter(in_, out_, op_, call_);
    case Collective::all_gather: return world_.all_gather(in_, out_, call_);
    case Collective::broadcast: return world_.broadcast(in_, kRoot, call_);
    case Collective::reduce: return world_.reduce(in_, out_, op_, kRoot, call_);
    case Collective::gather: return world_.gather(in_, out_, kRoot, call_);
    case Collective::scatter: return world_.scatter(in_, out_, kRoot, call_);
    case Collective::all_to_all: return world_.all_to_all(in_, out_, call_);
    case Collective::barrier: return world_.barrier(call_);
    default: break;
  }
  if (world_.size() == 1 || world_.rank().value > 1) return;  // send: rank 0 to rank 1 and back
  const Rank other{1 - world_.rank().value};
  if (world_.rank() == kRoot) world_.send(in_, other, 0, call_);
  world_.recv(in_, other, 0, call_);
  if (world_.rank() != kRoot) world_.send(in_, other, 0, call_);
}

}  // namespace cohort::bench
