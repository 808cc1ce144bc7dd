// What the cost of a collective depends on, and the measured constants that turn it into seconds.
// `cohort bench --calibrate` measures them and keeps them in a small file (calibration_file.h); every rank of a communicator uses rank 0's,
// so all choose alike. Threads: values, any.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "cohort/base/deadline.h"

namespace cohort::collective {

struct Shape {
  std::size_t bytes = 0;
  int ranks = 1;
  int cores = 1;                                             // that the ranks of this host may use together
  bool shared = false;                                       // all ranks map each other's memory
  bool in_place = false;                                     // and every buffer came from allocate()
  int hosts = 1;                                             // that the ranks are spread over; as many as ranks when none share memory
  int fewest = 1;                                            // ranks on the smallest of them ..
  int most = 1;                                              // .. and on the largest
  bool nested = true;                                        // Hosts::nested()
  bool mixed() const { return hosts > 1 && hosts < ranks; }  // some share memory, some do not
};

// Rates in bytes per second, latencies in seconds. The defaults are rough values for a 2-core server: `cohort bench --calibrate` measures
// the real ones.
struct Calibration {
  double sync_s = 0.4e-6;     // one synchronisation in shared memory, a core for every rank
  double crowded_s = 2.0e-6;  // the same per rank when ranks share cores
  double update_rate = 40e9;  // in-place update, all cores together, read and write counted
  double stage_rate = 12e9;   // copy into or out of a stage, or a reduction of stages, one core, bytes written
  double link_s = 1.0e-6;     // one message between two ranks
  double link_rate = 4e9;     // one way, both ways at once
  double reduce_rate = 10e9;  // two buffers into one, bytes written
  // Several hosts with several ranks each: the links above are those inside a host, these are the ones between hosts. Files without them
  // keep the built-in values, those of a 10 Gbit/s network.
  double between_s = 30e-6;
  double between_rate = 1.1e9;  // one way, both ways at once, all ranks of a host together

  static Calibration load(const std::string& path);  // Kind::usage with path and key when it cannot be read
  void save(const std::string& path) const;          // and that they are this machine's
  std::string text() const;
};

// Built-in constants for links over tcp on one host.
Calibration tcp_defaults();

Seconds sync_cost(const Shape& shape, const Calibration& k);  // one synchronisation in shared memory
double crowding(const Shape& shape);                          // ranks of a host per core, at least 1
int log2_ceil(int n);

// What an algorithm over links costs: rounds and bytes of the busiest rank inside a host, and of the busiest host between hosts.
struct Traffic {
  double rounds = 0, bytes = 0, between_rounds = 0, between_bytes = 0;
};
Seconds link_cost(const Shape& shape, const Calibration& k, const Traffic& traffic);  // without the arithmetic

}  // namespace cohort::collective
