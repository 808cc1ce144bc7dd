// The settings of the engine (`engine.*`; strategy, codec and seed are the settings `sync`, `codec` and `seed`). No torch here:
// configurations are read and checked by programs that do not train.
#pragma once
#include <string>

#include "cohort/base/bytes.h"
#include "cohort/base/config.h"
#include "cohort/base/precision.h"

namespace cohort::engine {

enum class CommSumDtype : std::uint8_t { comm, fp32 };
// When updated parameters travel to the ranks that read them. automatic: beside where ranks are on several hosts.
enum class PublishWhen : std::uint8_t { automatic, wait, beside };

struct EngineOptions {
  std::string strategy = "all_reduce(op=average)";
  std::string codec = "none";
  std::uint64_t seed = 0;  // of the job
  std::string mesh{};      // of the ranks (group/device_mesh.h); empty: all of them are dp
  ByteSize first_bucket{1_MiB};
  ByteSize bucket{25_MiB};
  ByteSize far_bucket{1_MiB};
  int lanes = -1;
  bool early_update = false;
  double clip_norm = 0;
  bool norms = false;
  bool autotune = false;
  Precision comm_dtype = Precision::fp32;
  CommSumDtype comm_sum_dtype = CommSumDtype::comm;
  int report_every = 10;
  PublishWhen publish = PublishWhen::automatic;
};

// The codec that they say: comm_dtype is another spelling of two of them.
inline std::string codec_of(const EngineOptions& o) {
  if (o.comm_dtype == Precision::fp32) return o.codec;
  return std::string(name_of(o.comm_dtype)) + (o.comm_sum_dtype == CommSumDtype::fp32 ? "(sum=fp32)" : "(sum=comm)");
}

inline void fields(EngineOptions& o, FieldList& f) {
  f("first_bucket", o.first_bucket, "bytes of the first bucket: small, so that something is sent early");
  f("bucket", o.bucket, "bytes of the others; 0: one bucket for everything");
  f("far_bucket", o.far_bucket,
    "bytes of any bucket at most where ranks are on several hosts: links are slow, and what is sent while backward runs costs nothing; 0: "
    "no other limit for them");
  f("lanes", o.lanes, Range{-1, 4},
    "threads that reduce buckets while backward runs; -1: one where cores are free for it or ranks are on several hosts");
  f("early_update", o.early_update,
    "update each bucket as soon as it is reduced: faster, but a step with a bad gradient can no longer be skipped");
  f("clip_norm", o.clip_norm, Range{0, 1e30}, "largest norm of the whole gradient; 0: no clipping");
  f("norms", o.norms, "measure every rank's own gradient norm too (what noise scale and AdaScale read)");
  f("autotune", o.autotune,
    "try bucket sizes and numbers of lanes before the first step and keep the fastest; changes no bit of the result");
  f("comm_dtype", o.comm_dtype, Words{"fp32", "bf16", "fp16"},
    "type gradients are sent in; 16 bits halve the bytes and round every gradient: another spelling of codec=bf16 and codec=fp16");
  f("comm_sum_dtype", o.comm_sum_dtype, Words{"comm", "fp32"},
    "with a comm_dtype of 16 bits, sums over the ranks: rounded to that type at each addition, or made in fp32 and rounded once");
  f("report_every", o.report_every, Range{1, 1000000},
    "where ranks neither vote nor meet in rounds (gossip, parallel_sgd, wait=none): steps after which they tell each other loss, speed and "
    "who leaves");
  f("publish", o.publish, Words{"auto", "wait", "beside"},
    "with zero(stage=1 or 2), when updated parameters travel to the other ranks: before the step ends (wait), or beside the next forward, "
    "in which every block waits for what it reads (beside); auto: beside where ranks are on several hosts; changes no bit of the result");
}

}  // namespace cohort::engine
