// Passes over the elements of Pieces of a GPU, f32 or f64: those of sync/elements.h, rounded at each operation, so that they give the
// processor's bits. They are enqueued on the calling thread's stream (runtime.h); nothing is waited for.
// Threads: any. Failure: as runtime.h; pieces of different counts or types are their caller's to refuse.
#pragma once
#include "cohort/base/piece.h"

namespace cohort::cuda {

void fill(const Piece& to, double value);
void swap(const Piece& a, const Piece& b);
void add(const Piece& to, const Piece& from);                       // to += from
void subtract(const Piece& to, const Piece& a, const Piece& b);     // to = a - b
void add_scaled(const Piece& to, double scale, const Piece& from);  // to += scale from
void lerp(const Piece& to, double share, const Piece& from);        // to = to + share (from - to)
void scale(const Piece& to, double by);                             // to *= by
void divide(const Piece& to, const Piece& from, double by);         // to = from / by
// Between types: from f32 to f16 and bf16, rounded to the nearest even as half.h does, and back.
void cast(const Piece& to, const Piece& from);

}  // namespace cohort::cuda
