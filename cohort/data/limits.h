// How much a file from outside may ask for: a small one can declare a picture of 2^28 pixels, pass over it a thousand times, or inflate to
// a thousand times its size. Above a limit a file is refused, with what was found, the limit and the setting that raises it. Owner: the
// process; set before data sets are opened (from the settings data.max_..). Threads: any. Failure: Kind::corrupt by who decodes.
#pragma once
#include <cstdint>

namespace cohort::data {

struct InputLimits {
  // Of one picture, as its file declares it; the largest cameras have fewer. Decoded it takes 300 MB. Those of a JPEG in several scans
  // count threefold: until the last scan its coefficients are kept too, two bytes each, and a scan of a few bytes passes over all of them.
  std::int64_t max_pixels = 100'000'000;
  std::int64_t max_scans = 30;           // passes of a progressive JPEG over the picture; encoders write about 10
  std::int64_t max_inflate_ratio = 200;  // of gzip, beyond the first 16 MiB; deflate's own limit is 1032
};

InputLimits input_limits();
void set_input_limits(const InputLimits& limits);

}  // namespace cohort::data
