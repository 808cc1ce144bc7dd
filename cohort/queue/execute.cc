#include "cohort/queue/execute.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "cohort/collective/operations/adasum.h"
#include "cohort/queue/fusion.h"

namespace cohort::queue {

namespace {

using Counts = std::vector<std::size_t>;

double as_f32(double factor) { return static_cast<float>(factor); }

void copy(const Piece& from, const Piece& to) {
  if (from.bytes() != 0 && from.data != to.data) std::memcpy(to.data, from.data, from.bytes());
}

std::size_t sum(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }

Counts even(std::size_t count, std::size_t ranks) { return Counts(ranks, count / ranks); }

// Sizes are sent as i64, whatever size_t is.
Piece piece_of(std::vector<std::int64_t>& sizes) { return collective::piece(std::span(sizes)); }

Piece allocate(const Operation& operation, std::size_t part, std::size_t count) {
  const Piece& like = operation.parts[part].in;
  try {
    return {operation.allocate(part, count), count, like.dtype, like.device};
  } catch (const std::exception& e) {
    throw_failure(Kind::system, "no memory for the {} elements that {} '{}' receives: {}", count, name_of(operation.collective),
                  operation.name, e.what());
  }
}

// The pieces of one element type each, in order of appearance.
std::vector<std::vector<Piece>> by_type(const std::vector<Piece>& pieces) {
  std::vector<std::vector<Piece>> lists;
  for (const Piece& piece : pieces) {
    auto list = std::find_if(lists.begin(), lists.end(), [&](const auto& other) { return other.front().dtype == piece.dtype; });
    if (list == lists.end()) list = lists.emplace(lists.end());
    list->push_back(piece);
  }
  return lists;
}

}  // namespace

// An average divides the factor by the number of ranks. What it then leaves is to be the f32 nearest to postscale / ranks; that times the
// ranks is exact, 24 bits by fewer than 29.
template <class Scaled>
collective::Call Executor::call_of(const Scaled& what, std::string_view name, Dtype dtype) const {
  if (!factors_in_type_ || dtype != Dtype::f32) return {.name = name, .prescale = what.prescale, .postscale = what.postscale};
  const double divisor = what.op == Op::average ? comm_.size() : 1;
  return {.name = name, .prescale = as_f32(what.prescale), .postscale = as_f32(what.postscale / divisor) * divisor};
}

Result Executor::run(Operation& operation) {
  switch (operation.collective) {
    case Collective::all_reduce: all_reduce(operation); return {};
    case Collective::all_gather: return all_gather(operation);
    case Collective::all_to_all: return all_to_all(operation);
    case Collective::barrier: comm_.barrier({.name = operation.name}); return {};
    default:
      for (const Part& part : operation.parts) run_part(operation, part);
      return {};
  }
}

void Executor::run_part(const Operation& o, const Part& part) {
  const collective::Call call = call_of(o, o.name, part.in.dtype);
  switch (o.collective) {
    case Collective::broadcast:
      if (part.out.data != nullptr && o.root == comm_.rank()) copy(part.in, part.out);
      return comm_.broadcast(target(part), o.root, call);
    case Collective::reduce_scatter: return comm_.reduce_scatter(part.in, part.out, o.op, call, part.counts);
    case Collective::reduce: return comm_.reduce(part.in, part.out, o.op, o.root, call);
    case Collective::gather: return comm_.gather(part.in, part.out, o.root, call, part.counts);
    case Collective::scatter: return comm_.scatter(part.in, part.out, o.root, call, part.counts);
    default: throw_failure(Kind::bug, "{} is not a collective of one part", name_of(o.collective));
  }
}

void Executor::all_reduce(Operation& o) {
  if (o.reduce) return o.reduce(comm_, {.name = o.name});
  if (o.adasum) {
    for (const Part& part : o.parts) {
      copy(part.in, target(part));
      collective::adasum(comm_, target(part), call_of(o, o.name, part.in.dtype));
    }
    return;
  }
  const Signature signature = signature_of(o);
  if (o.parts.size() > 1 && fusible(signature) && queue::bytes_of(signature) <= kPackBytes) {
    const UnitMember member{&o, &signature, o.name};
    return run_packed(std::span(&member, 1));
  }
  std::vector<Piece> pieces;
  for (const Part& part : o.parts) {
    copy(part.in, target(part));
    pieces.push_back(target(part));
  }
  if (pieces.size() == 1) return comm_.all_reduce(pieces.front(), o.op, call_of(o, o.name, pieces.front().dtype));
  if (!factors_in_type_) return comm_.all_reduce(pieces, o.op, call_of(o, o.name, pieces.front().dtype));
  for (const auto& alike : by_type(pieces)) comm_.all_reduce(alike, o.op, call_of(o, o.name, alike.front().dtype));
}

void Executor::run_unit(std::span<const UnitMember> members) {
  std::size_t bytes = 0;
  for (const UnitMember& member : members) bytes += queue::bytes_of(*member.signature);
  bytes <= kPackBytes ? run_packed(members) : run_in_place(members);
}

void Executor::run_packed(std::span<const UnitMember> members) {
  const Signature& like = *members.front().signature;
  std::size_t count = 0;
  for (const UnitMember& member : members) {
    for (const PartSignature& part : member.signature->parts) count += part.count();
  }
  const Piece all = buffer(count, like.parts.front().dtype);
  std::size_t at = 0;
  for (const UnitMember& member : members) {
    for (std::size_t i = 0; i < member.signature->parts.size(); ++i) {
      const Piece slot = all.part(at, member.signature->parts[i].count());
      at += slot.count;
      if (member.operation != nullptr)
        copy(member.operation->parts[i].in, slot);
      else if (slot.count != 0)
        std::memset(slot.data, 0, slot.bytes());
    }
  }
  comm_.all_reduce(all, like.op, call_of(like, members.front().name, all.dtype));
  at = 0;
  for (const UnitMember& member : members) {
    for (std::size_t i = 0; i < member.signature->parts.size(); ++i) {
      const Piece slot = all.part(at, member.signature->parts[i].count());
      at += slot.count;
      if (member.operation != nullptr) copy(slot, target(member.operation->parts[i]));
    }
  }
}

void Executor::run_in_place(std::span<const UnitMember> members) {
  std::size_t missing = 0;
  for (const UnitMember& member : members) missing += member.operation == nullptr ? queue::bytes_of(*member.signature) : 0;
  const collective::Region zeros = missing == 0 ? collective::Region{} : comm_.allocate(round_up(missing, kPageBytes));
  std::byte* next = static_cast<std::byte*>(zeros.data());
  std::vector<Piece> pieces;
  for (const UnitMember& member : members) {
    for (std::size_t i = 0; i < member.signature->parts.size(); ++i) {
      const PartSignature& part = member.signature->parts[i];
      if (member.operation == nullptr) {
        pieces.push_back({next, part.count(), part.dtype});
        next += part.bytes();
        continue;
      }
      pieces.push_back(target(member.operation->parts[i]));
      copy(member.operation->parts[i].in, pieces.back());
    }
  }
  const Signature& like = *members.front().signature;
  comm_.all_reduce(pieces, like.op, call_of(like, members.front().name, like.parts.front().dtype));
}

void Executor::run_zeros(const Signature& signature, std::string name) {
  Operation o{.collective = signature.collective, .name = std::move(name), .op = signature.op};
  o.prescale = signature.prescale;
  o.postscale = signature.postscale;
  const collective::Region zeros = comm_.allocate(round_up(queue::bytes_of(signature) + 1, kPageBytes));
  Piece rest{zeros.data(), zeros.bytes(), Dtype::u8};
  for (const PartSignature& part : signature.parts) {
    o.parts.push_back({.in = {rest.data, part.count(), part.dtype}});
    o.parts.back().shape = part.shape;
    rest = rest.part(part.bytes(), rest.count - part.bytes());
  }
  all_reduce(o);
}

Piece Executor::buffer(std::size_t count, Dtype dtype) {
  const std::size_t bytes = count * size_of(dtype);
  if (bytes > region_.bytes()) {
    region_ = {};  // the old one goes first: never two at once
    region_ = comm_.allocate(std::max(std::bit_ceil(bytes), 64_KiB));
  }
  return {region_.data(), count, dtype};
}

// Without `allocate` the blocks are known. With it, one small gather tells how much each rank sends for each part.
Result Executor::all_gather(Operation& o) {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  const std::size_t parts = o.parts.size();
  std::vector<std::int64_t> mine(parts), theirs(parts * ranks);
  for (std::size_t i = 0; i < parts; ++i) mine[i] = static_cast<std::int64_t>(o.parts[i].in.count);
  if (o.allocate) comm_.all_gather(piece_of(mine), piece_of(theirs), {.name = o.name});
  Result result;
  for (std::size_t i = 0; i < parts; ++i) {
    Part& part = o.parts[i];
    Counts counts = part.counts.empty() ? even(part.out.count, ranks) : part.counts;
    if (o.allocate) {
      for (std::size_t r = 0; r < ranks; ++r) counts.resize(ranks), counts[r] = static_cast<std::size_t>(theirs[r * parts + i]);
      part.out = allocate(o, i, sum(counts));
    }
    comm_.all_gather(part.in, part.out, {.name = o.name}, counts);
    result.counts.push_back(std::move(counts));
  }
  return result;
}

Result Executor::all_to_all(Operation& o) {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  Result result;
  for (std::size_t i = 0; i < o.parts.size(); ++i) {
    Part& part = o.parts[i];
    const Counts sends = part.counts.empty() ? even(part.in.count, ranks) : part.counts;
    Counts receives = part.recv_counts.empty() ? even(part.out.count, ranks) : part.recv_counts;
    if (o.allocate) {
      std::vector<std::int64_t> mine(sends.begin(), sends.end()), theirs(ranks);
      comm_.all_to_all(piece_of(mine), piece_of(theirs), {.name = o.name});
      receives.assign(theirs.begin(), theirs.end());
      part.out = allocate(o, i, sum(receives));
    }
    comm_.all_to_all(part.in, part.out, {.name = o.name}, sends, receives);
    result.counts.push_back(std::move(receives));
  }
  return result;
}

}  // namespace cohort::queue
