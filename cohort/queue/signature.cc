#include "cohort/queue/signature.h"

#include <fmt/ranges.h>

#include "cohort/base/error.h"

namespace cohort::queue {

std::size_t PartSignature::count() const {
  std::size_t n = 1;
  for (const auto length : shape) {
    if (length == kAnyLength) throw_failure(Kind::bug, "the element count of a gathering operation is not in its signature");
    n *= static_cast<std::size_t>(length);
  }
  return n;
}

Signature signature_of(const Operation& operation) {
  Signature s{operation.collective, operation.op,        operation.root,
              operation.prescale,   operation.postscale, operation.allocate != nullptr,
              operation.adasum,     operation.codec,     {}};
  const bool lengths_differ = operation.collective == Collective::all_gather || operation.collective == Collective::gather ||
                              operation.collective == Collective::scatter || operation.collective == Collective::all_to_all;
  for (const Part& part : operation.parts) {
    const Piece& piece = operation.collective == Collective::scatter ? part.out : part.in;
    PartSignature& sign = s.parts.emplace_back(PartSignature{piece.dtype, {piece.device.kind}, part.shape});
    if (sign.shape.empty()) sign.shape = {static_cast<std::int64_t>(piece.count)};
    if (lengths_differ) sign.shape[0] = kAnyLength;
  }
  return s;
}

std::size_t bytes_of(const Signature& signature) {
  std::size_t bytes = 0;
  for (const PartSignature& part : signature.parts) bytes += part.bytes();
  return bytes;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> words;
  for (const auto length : shape) words.push_back(length == kAnyLength ? "*" : std::to_string(length));
  return fmt::format("[{}]", fmt::join(words, ", "));
}

std::string_view horovod_name(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return "allreduce";
    case Collective::reduce_scatter: return "reducescatter";
    case Collective::all_gather: return "allgather";
    case Collective::all_to_all: return "alltoall";
    default: return name_of(collective);
  }
}

namespace {

// "<head>: One rank <did> <a>, but another rank <did> <b> ('name': rank 0 <a>, rank 1 <b>); what to do"
struct Sides {
  std::string_view name;
  Rank one, other;
  std::string text(std::string_view head, std::string_view did, std::string_view left, std::string_view right) const {
    return fmt::format(
        "Mismatched {}: One rank {} {}, but another rank {} {} ('{}': rank {} has {}, rank {} has {}); "
        "submit the same operation under this name on every rank",
        head, did, left, did, right, name, one.value, left, other.value, right);
  }
};

std::optional<std::string> part_mismatch(const Sides& sides, Collective collective, const PartSignature& left, const PartSignature& right) {
  if (left.dtype != right.dtype) return sides.text("data types", "had type", name_of(left.dtype), name_of(right.dtype));
  if (left.shape != right.shape) {
    const auto head = fmt::format("{} tensor shapes", horovod_name(collective));
    return sides.text(head, "sent a tensor of shape", shape_text(left.shape), shape_text(right.shape));
  }
  if (left.device != right.device) {
    const auto word = [](Device d) { return d.kind == DeviceKind::cpu ? "the CPU" : "a GPU"; };
    return sides.text("devices", "had its tensor on", word(left.device), word(right.device));
  }
  return std::nullopt;
}

std::string scales(const Signature& s) { return fmt::format("{} and {}", s.prescale, s.postscale); }

}  // namespace

std::optional<std::string> mismatch(std::string_view name, Rank one, const Signature& left, Rank other, const Signature& right) {
  const Sides sides{name, one, other};
  if (left.collective != right.collective)
    return sides.text("operations", "did the operation", horovod_name(left.collective), horovod_name(right.collective));
  if (left.parts.size() != right.parts.size()) {
    return sides.text("group sizes", "grouped this many tensors:", std::to_string(left.parts.size()), std::to_string(right.parts.size()));
  }
  for (std::size_t i = 0; i < left.parts.size(); ++i) {
    if (auto text = part_mismatch(sides, left.collective, left.parts[i], right.parts[i])) return text;
  }
  const auto op = [](const Signature& s) { return s.adasum ? std::string_view("adasum") : name_of(s.op); };
  if (op(left) != op(right)) return sides.text("reduction operations", "used the op", op(left), op(right));
  if (left.root != right.root) {
    const auto head = fmt::format("{} root ranks", horovod_name(left.collective));
    return sides.text(head, "specified root rank", std::to_string(left.root.value), std::to_string(right.root.value));
  }
  if (left.prescale != right.prescale || left.postscale != right.postscale) {
    return sides.text("prescale and/or postscale factors", "used the factors", scales(left), scales(right));
  }
  if (left.codec != right.codec) {
    const auto word = [](const Signature& s) { return s.codec.empty() ? std::string_view("none") : std::string_view(s.codec); };
    return sides.text("codecs", "sent its tensors by codec", word(left), word(right));
  }
  if (left.sizes_asked != right.sizes_asked) {
    const auto word = [](const Signature& s) { return s.sizes_asked ? "sizes from its peers" : "sizes known beforehand"; };
    return sides.text("size rules", "wanted", word(left), word(right));
  }
  return std::nullopt;
}

}  // namespace cohort::queue
