#include "cohort/sync/wire.h"

#include "cohort/sync/elements.h"

namespace cohort::sync {

using collective::Op;

void Wire::reduce(Bucket& bucket, Op wanted) const {
  const bool mean_of_others = wanted == Op::average && mean_of > 0 && mean_of != comm->size();
  const Op op = mean_of_others ? Op::sum : wanted;
  if (CodedReduce* coded = bucket.coded()) {
    coded->reduce(*comm, bucket.gradients(), bucket.placement().sharded() ? bucket.reduce_output() : Piece{}, op, step, call(bucket));
  } else if (bucket.placement().sharded()) {
    comm->reduce_scatter(bucket.gradients(), bucket.reduce_output(), op, call(bucket), bucket.counts());
  } else {
    comm->all_reduce(bucket.gradients(), op, call(bucket));
  }
  const bool vote = bucket.coded() != nullptr && bucket.coded()->votes();  // neither a sum nor a mean
  if (mean_of_others && !vote) scale(bucket.placement().sharded() ? bucket.reduce_output() : bucket.gradients(), 1.0 / mean_of);
  bucket.mark_reduced();
}

void Wire::gather(Bucket& bucket) const {
  if (comm->size() > 1) comm->all_gather(bucket.owned_parameters(), bucket.parameters(), call(bucket), bucket.counts());
}

void Wire::average(Bucket& bucket, const Piece& values) const { comm->all_reduce(values, Op::average, call(bucket)); }
void Wire::sum(Bucket& bucket, const Piece& values) const { comm->all_reduce(values, Op::sum, call(bucket)); }

}  // namespace cohort::sync
