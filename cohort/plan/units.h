// How people write the speed of a machine: "100Gbit", "12.5GB", "312T", "3.35TB".
// Threads: any. Failure: Kind::usage naming the text and an example.
#pragma once
#include <string_view>

namespace cohort::plan {

double parse_link(std::string_view text);   // bytes a second: "100Gbit" (10^9 bits), "10Gbit/s", "1.2GB/s"; decimal prefixes
double parse_flops(std::string_view text);  // operations a second: "312T", "19.5TFLOPS", "5e12"
double parse_membw(std::string_view text);  // bytes a second: "3.35TB", "40GB/s"

}  // namespace cohort::plan
