// Passes over the elements of Pieces (f32 or f64) that strategies and buckets need beside the optimizer's: rounded at each operation, so
// that the compiler's vectors, and a GPU's threads, give the bits of a plain loop. On a GPU they are enqueued (cuda/runtime.h).
// Threads: any. Failure: Kind::bug for pieces of different counts, types or devices.
#pragma once
#include "cohort/base/piece.h"

namespace cohort::sync {

void fill(const Piece& to, double value);
void copy(const Piece& to, const Piece& from);
void swap(const Piece& a, const Piece& b);
void add(const Piece& to, const Piece& from);                       // to += from
void subtract(const Piece& to, const Piece& a, const Piece& b);     // to = a - b
void add_scaled(const Piece& to, double scale, const Piece& from);  // to += scale from
void lerp(const Piece& to, double share, const Piece& from);        // to = to + share (from - to)
void scale(const Piece& to, double by);                             // to *= by
void divide(const Piece& to, const Piece& from, double by);         // to = from / by
void zero(const Piece& to);                                         // of any type
bool all_finite(const Piece& values);                               // of a GPU: it is waited for
double squared_norm(const Piece& values);                           // these two sum in double
double squared_distance(const Piece& a, const Piece& b);

}  // namespace cohort::sync
