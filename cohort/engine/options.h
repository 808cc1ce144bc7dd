// What can be told about the engine. No torch here: configurations are read and checked by programs that do not train.
#pragma once
#include <string>

#include "cohort/base/bytes.h"
#include "cohort/base/config.h"

namespace cohort::engine {

struct EngineOptions {
  std::string strategy = "all_reduce(op=average)";
  ByteSize first_bucket{1_MiB};
  ByteSize bucket{25_MiB};
  int lanes = -1;
  bool early_update = false;
  double clip_norm = 0;
  bool norms = false;
  bool autotune = false;
};

inline void fields(EngineOptions& o, FieldList& f) {
  f("strategy", o.strategy, "how ranks agree on gradients: all_reduce(op=average|sum)");
  f("first_bucket", o.first_bucket, "bytes of the first bucket: small, so that something leaves early");
  f("bucket", o.bucket, "bytes of the others; 0: one bucket for everything");
  f("lanes", o.lanes, Range{-1, 4}, "threads that carry buckets while backward runs; -1: decided from the free cores");
  f("early_update", o.early_update, "update each bucket as soon as it is agreed upon: faster, but a bad step can no longer be called off");
  f("clip_norm", o.clip_norm, Range{0, 1e30}, "largest norm of the whole gradient; 0: no clipping");
  f("norms", o.norms, "measure every rank's own gradient norm too (what noise scale and AdaScale read)");
  f("autotune", o.autotune,
    "try bucket sizes and numbers of lanes before the first step and keep the fastest; changes no bit of the result");
}

}  // namespace cohort::engine
