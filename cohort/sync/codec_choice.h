// codec: auto. At the start all ranks time a small and a large all-reduce, and each codec on a part of the model; what an exchange of all
// gradients takes follows (codec/cost.h), and the cheapest is taken. Every number is the slowest rank's, so all ranks choose the same.
//   T = compute + legs latency + bytes / link        of the candidates whose error is at most that of the setting
// Owner: values. Threads: one. Failure: the communicator's; Kind::usage for a setting that cannot be read.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/bytes.h"
#include "cohort/base/spec.h"
#include "cohort/codec/cost.h"
#include "cohort/collective/communicator.h"

namespace cohort::sync {

inline constexpr const char* kCodecAuto = "auto";
bool is_codec_auto(std::string_view spec);  // "auto", "auto(error=1)"
const SpecSchema& codec_auto_schema();

struct CodecLimits {
  bool feedback = true;  // codecs that keep what they do not send
};

struct CodecChoice {
  std::string codec;  // "none", or a spec
  std::string why;    // one line for the log
};

// A link as an all-reduce sees it.
struct LinkSpeed {
  double bytes_a_second = 0, latency = 0;  // latency: of one leg
};
LinkSpeed measure_link(collective::Communicator& comm);
// The cheapest; none, where another saves less than a tenth of its time.
CodecChoice choose_codec(std::span<const codec::Cost> all, const LinkSpeed& link);
// Collective. bucket: bytes that are sent as one; 0: all are.
CodecChoice choose_codec(collective::Communicator& comm, std::string_view spec, std::span<const TensorPlace> tensors, std::size_t bucket,
                         const CodecLimits& limits);

}  // namespace cohort::sync
