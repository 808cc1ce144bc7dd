// What the ranks must agree on before an operation of some name may run: collective, types, shapes, op, root, scales.
// The first dimension of the gathering collectives may differ between ranks and is left out.
// Threads: values, pure functions. To add a field: here, in message.cc, and a sentence in mismatch().
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/queue/operation.h"

namespace cohort::queue {

inline constexpr std::int64_t kAnyLength = -1;  // a dimension that may differ between ranks

struct PartSignature {
  Dtype dtype = Dtype::f32;
  Device device = Device::cpu;  // without its index: ranks may use GPUs of different numbers
  std::vector<std::int64_t> shape{};
  bool operator==(const PartSignature&) const = default;
  std::size_t count() const;  // elements; only where no dimension is kAnyLength
  std::size_t bytes() const { return count() * size_of(dtype); }
};

struct Signature {
  Collective collective = Collective::barrier;
  Op op = Op::sum;
  Rank root{};
  double prescale = 1.0;
  double postscale = 1.0;
  bool sizes_asked = false;  // the received sizes are exchanged first (Operation::allocate)
  bool adasum = false;       // combined by Adasum; op is then sum
  std::string codec{};       // reduced by way of it; empty: as it is
  std::vector<PartSignature> parts{};
  bool operator==(const Signature&) const = default;
};

Signature signature_of(const Operation& operation);
std::size_t bytes_of(const Signature& signature);  // all parts; only where no dimension is kAnyLength
std::string shape_text(const std::vector<std::int64_t>& shape);

// Horovod's name of a collective: "allreduce".
std::string_view horovod_name(Collective collective);

// What two ranks that submitted `name` differ in, both named; nullopt when they agree.
std::optional<std::string> mismatch(std::string_view name, Rank one, const Signature& left, Rank other, const Signature& right);

}  // namespace cohort::queue
