// What one exchange of gradients takes by a codec, and the link below which that pays.
//   T(link) = compute + legs latency + bytes / link
// bytes: what a rank of n receives (sync/coded_reduce.h counts the same). compute: seconds of its core to encode, to decode what came, and
// to keep what was not sent. What a collective itself adds up on the way is left out, on both sides of a comparison.
//   the link below which a codec takes less time than another = (bytes of the other - bytes) / (compute - compute of the other)
// Owner: values. Threads: measure_cost() times the calling thread. Failure: the codec's.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cohort/codec/codec.h"

namespace cohort::codec {

struct Cost {
  std::string codec = "none";
  double elements = 0;
  double bytes = 0;  // received by a rank; of payloads of variable length the most
  double legs = 2;   // messages one after the other, but for the number of ranks
  double compute = 0;
  double encode = 0, decode = 0;  // seconds for all elements once, of one payload
  double payload = 0;             // bytes of a rank's payload
  double error = 0;               // |x - C(x)| / |x| of normal noise

  double seconds(double bytes_a_second, double latency = 0) const { return compute + legs * latency + bytes / bytes_a_second; }
};

// Of gradients as they are: fp32, all-reduced.
Cost cost_of_none(std::span<const Layout> buckets, int ranks);
// Times the codec on this core, on buckets of normal noise. repeats: the least of so many counts.
Cost measure_cost(const Codec& codec, std::span<const Layout> buckets, int ranks, int repeats = 3);

// Bytes a second of a link below which `codec` takes less time than `other`; 0: on none, infinity: on all.
double crossover(const Cost& codec, const Cost& other);
// The one of the least time on the link; of equal ones the first.
const Cost& cheapest(std::span<const Cost> all, double bytes_a_second, double latency);

// A layout of tensors one after the other, of buckets of at most so many bytes (a larger tensor is one by itself).
std::vector<Layout> bucket_layouts(std::span<const TensorPlace> tensors, std::size_t bucket_bytes);

}  // namespace cohort::codec
