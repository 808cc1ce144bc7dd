// TensorBoard's events as bytes, without protobuf: the few fields that TensorBoard reads, written by hand.
//   record   u64le length | u32le masked(crc32c(length)) | payload | u32le masked(crc32c(payload))
//   masked   rotate right by 15 bits, plus 0xa282ead8
//   Event    1 wall_time double | 2 step int64 | 3 file_version | 5 summary | 7 session_log | 10 source_metadata
//   Summary  1 value* { 1 tag | 2 simple_value float | 4 image { 1 height 2 width 3 colorspace 4 png } | 5 histo }
//   Histo    1 min 2 max 3 num 4 sum 5 sum_squares doubles | 6 bucket_limit 7 bucket packed doubles
// Threads: pure functions. Failure: Kind::usage for an image that is none.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/observe/png.h"

namespace cohort::observe {

struct Moment {
  double wall = 0;  // seconds since 1970
  std::int64_t step = 0;
};

// Buckets grow by a tenth from 1e-12 on, mirrored below zero, as TensorFlow and torch.utils.tensorboard draw them; empty ones at both
// ends are left out. nan and inf are in no bucket and not in the sums, only in `nonfinite`.
struct Histogram {
  double min = 0, max = 0, count = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits;  // upper edge of each bucket
  std::vector<double> counts;
  std::uint64_t nonfinite = 0;
};
Histogram histogram_of(std::span<const float> values);

std::string file_version_event(double wall);
// "The run starts again at this step": TensorBoard forgets what the killed run had written from there on.
std::string session_start_event(Moment at);
std::string scalar_event(Moment at, std::string_view tag, double value);  // TensorBoard keeps a float
std::string histogram_event(Moment at, std::string_view tag, const Histogram& histogram);
std::string image_event(Moment at, std::string_view tag, const Image& image);

std::uint32_t masked_crc(std::string_view bytes);
std::string record_of(std::string_view payload);

}  // namespace cohort::observe
