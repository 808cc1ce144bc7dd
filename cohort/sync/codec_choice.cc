#include "cohort/sync/codec_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

namespace cohort::sync {
namespace {

using collective::Communicator;
using collective::Op;

constexpr const char* kCandidates[] = {"bf16", "int8", "qsgd", "topk(ratio=0.01)", "powersgd(rank=2)", "sign"};
constexpr double kLeastGain = 0.1;                 // of the time without a codec: less is within what links change by themselves
constexpr std::size_t kLargeBytes = 4_MiB;         // of the timed all-reduce: about a bucket
constexpr std::size_t kSampleElements = 1u << 21;  // of the model, that codecs are timed on
constexpr int kRounds = 3;

double timed(Communicator& comm, const Piece& values) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kRounds; ++i) {  // the first opens connections
    comm.barrier({.name = "codec=auto"});
    const auto start = std::chrono::steady_clock::now();
    comm.all_reduce(values, Op::sum, {.name = "codec=auto"});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i > 0) least = std::min(least, seconds);
  }
  comm.all_reduce(piece(std::span(&least, 1)), Op::max, {.name = "codec=auto"});
  return least;
}

// So many of the largest tensors as make the sample: what they take stands for all.
std::vector<TensorPlace> sample_of(std::span<const TensorPlace> tensors) {
  std::vector<TensorPlace> sample(tensors.begin(), tensors.end());
  std::stable_sort(sample.begin(), sample.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  std::size_t count = 0, kept = 0;
  while (kept < sample.size() && count < kSampleElements) count += sample[kept++].count;
  sample.resize(kept);
  return sample;
}

std::string rate_text(double bytes_a_second) {
  return bytes_a_second < 1.25e8 ? fmt::format("{:.3g} Mb/s", 8e-6 * bytes_a_second) : fmt::format("{:.3g} Gb/s", 8e-9 * bytes_a_second);
}

}  // namespace

const SpecSchema& codec_auto_schema() {
  static const SpecSchema schema{
      kCodecAuto,
      "the codec that takes the least time on the link that is there",
      {{.name = "error",
        .type = SpecParam::Type::real,
        .doc = "error of normal noise, |x - C(x)| / |x|, that a codec may have: 0.02 allows none, bf16 and int8; 1 all that keep the rest",
        .preset = "0.02",
        .low = 0,
        .high = 10}}};
  return schema;
}

bool is_codec_auto(std::string_view spec) {
  return spec == kCodecAuto || (spec.starts_with("auto") && Spec::parse(spec).name == kCodecAuto);
}

LinkSpeed measure_link(Communicator& comm) {
  if (comm.size() == 1) return {std::numeric_limits<double>::infinity(), 0};
  const auto region = comm.allocate(kLargeBytes);
  std::fill_n(static_cast<std::byte*>(region.data()), kLargeBytes, std::byte{0});
  const double small = timed(comm, {region.data(), 1, Dtype::f32});
  const double large = timed(comm, {region.data(), kLargeBytes / 4, Dtype::f32});
  const double n = comm.size(), bytes = 2 * static_cast<double>(kLargeBytes) * (n - 1) / n;
  return {.bytes_a_second = bytes / std::max(large - small, 1e-9), .latency = small / 2};
}

CodecChoice choose_codec(std::span<const codec::Cost> all, const LinkSpeed& link) {
  const auto seconds = [&](const codec::Cost& cost) { return cost.seconds(link.bytes_a_second, link.latency); };
  const codec::Cost& best = codec::cheapest(all, link.bytes_a_second, link.latency);
  const codec::Cost& taken = seconds(best) > (1 - kLeastGain) * seconds(all[0]) ? all[0] : best;
  std::string others;
  for (const codec::Cost& cost : all)
    if (&cost != &taken)
      others += fmt::format("{}{} {:.3g} ms", others.empty() ? "" : ", ", cost.codec.substr(0, cost.codec.find('(')), 1e3 * seconds(cost));
  return {.codec = taken.codec,
          .why = fmt::format("codec=auto takes {}: {:.3g} ms an exchange over {}, {:.3g} us a message ({})", taken.codec,
                             1e3 * seconds(taken), rate_text(link.bytes_a_second), 1e6 * link.latency, others)};
}

CodecChoice choose_codec(Communicator& comm, std::string_view spec, std::span<const TensorPlace> tensors, std::size_t bucket,
                         const CodecLimits& limits) {
  const double most = codec_auto_schema().read(Spec::parse(spec)).real("error");
  if (comm.size() == 1) return {.codec = "none", .why = "codec=auto takes none: there is one rank"};
  const std::size_t bytes = bucket > 0 ? bucket : std::numeric_limits<std::size_t>::max();
  const auto whole = codec::bucket_layouts(tensors, bytes), sample = codec::bucket_layouts(sample_of(tensors), bytes);
  std::vector<codec::Cost> all{codec::cost_of_none(whole, comm.size())};
  const LinkSpeed link = measure_link(comm);
  for (const char* name : kCandidates) {
    const auto codec = codec::make(name);
    if (codec->feedback() && !limits.feedback) continue;
    codec::Cost cost = codec::measure_cost(*codec, sample, comm.size());
    const double part = cost.elements > 0 ? all[0].elements / cost.elements : 1;
    double numbers[] = {cost.compute * part, cost.error};
    comm.all_reduce(piece(std::span<double>(numbers)), Op::max, {.name = "codec=auto"});
    if (numbers[1] > most) continue;
    cost.compute = numbers[0];
    cost.bytes *= part;
    cost.legs = cost.legs / static_cast<double>(std::max<std::size_t>(1, sample.size())) * static_cast<double>(whole.size());
    all.push_back(cost);
  }
  return choose_codec(all, link);
}

}  // namespace cohort::sync
