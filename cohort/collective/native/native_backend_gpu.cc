// Collectives on memory of a GPU that no backend carries: to the host, in pinned memory that peers read in place, reduced there by the
// canonical plans, and back. So the bits are those of ranks on CPUs, whatever the GPUs and links are. A world of one leaves data where it
// is.
#include <algorithm>

#include "cohort/base/bytes.h"
#include "cohort/collective/native/native_backend.h"
#include "cohort/cuda/runtime.h"

namespace cohort::collective {
namespace {

constexpr std::size_t kAlign = 64;  // bytes, between pieces of one operation

bool on_gpu(Piece piece) { return piece.device.kind == DeviceKind::cuda; }
cuda::Stream stream_of(const Call& call) { return call.stream != nullptr ? call.stream : cuda::current_stream(); }
bool unscaled(const Call& call) { return call.prescale == 1.0 && call.postscale == 1.0; }

}  // namespace

// What lies elsewhere than it says is refused, as every piece is that nobody carries (check_piece).
bool NativeBackend::through_host(Collective collective, Piece piece, Op op) const {
  return on_gpu(piece) && !delegated(collective, piece, op, piece.count) && cuda::available();
}

// A place in the host's memory for a piece, with its values when they are to be read. Where several are copied the caller waits once.
Piece NativeBackend::host_copy(std::size_t which, Piece piece, bool read) {
  HostCopy& copy = host_copies_[which];
  if (copy.region.bytes() < piece.bytes()) {
    copy = {};
    copy.region = allocate(std::max(piece.bytes(), kAlign), Device::cpu);
    copy.pinned = cuda::pin(std::make_shared<Region>(copy.region), copy.region.data(), copy.region.bytes());
  }
  const Piece here{copy.region.data(), piece.count, piece.dtype, Device::cpu};
  if (read) cuda::copy(here, piece);
  return here;
}

// Returns when it is there: the place is used again by the next operation, of whatever stream.
void NativeBackend::copy_back(Piece to, Piece from) {
  cuda::copy(to, from);
  cuda::synchronize(to.device);
}

void NativeBackend::all_reduce_through_host(std::span<const Piece> pieces, Op op, const Call& call) {
  if (size() == 1 && unscaled(call)) return;
  const cuda::OnStream on(stream_of(call));
  std::vector<std::size_t> places;
  std::size_t bytes = 0;
  for (const Piece& p : pieces) {
    places.push_back(bytes);
    bytes += round_up(p.bytes(), kAlign);
  }
  const Piece all = host_copy(0, {nullptr, bytes, Dtype::u8, Device::cpu}, false);
  std::vector<Piece> here;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    here.push_back({static_cast<std::byte*>(all.data) + places[i], pieces[i].count, pieces[i].dtype, Device::cpu});
    on_gpu(pieces[i]) ? cuda::copy(here[i], pieces[i]) : static_cast<void>(here[i] = pieces[i]);
  }
  for (const Piece& p : pieces)
    if (on_gpu(p)) cuda::synchronize(p.device);
  all_reduce(here, op, call);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (on_gpu(pieces[i])) copy_back(pieces[i], here[i]);
}

void NativeBackend::reduce_scatter_through_host(Piece in, Piece out, Op op, const Call& call, std::span<const std::size_t> counts) {
  const cuda::OnStream on(stream_of(call));
  if (size() == 1 && unscaled(call) && in.count == out.count && in.dtype == out.dtype) return cuda::copy(out, in);
  const Piece from = host_copy(0, in, true), to = on_gpu(out) ? host_copy(1, out, false) : out;
  cuda::synchronize(in.device);
  reduce_scatter(from, to, op, call, counts);
  if (on_gpu(out)) copy_back(out, to);
}

void NativeBackend::all_gather_through_host(Piece in, Piece out, const Call& call, std::span<const std::size_t> counts) {
  const cuda::OnStream on(stream_of(call));
  if (size() == 1 && in.count == out.count && in.dtype == out.dtype) return cuda::copy(out, in);
  const Piece from = host_copy(0, in, true), to = on_gpu(out) ? host_copy(1, out, false) : out;
  cuda::synchronize(in.device);
  all_gather(from, to, call, counts);
  if (on_gpu(out)) copy_back(out, to);
}

void NativeBackend::broadcast_through_host(Piece data, Rank root, const Call& call) {
  if (size() == 1) return;
  const cuda::OnStream on(stream_of(call));
  const bool mine = root == rank();
  const Piece here = host_copy(0, data, mine);
  if (mine) cuda::synchronize(data.device);
  broadcast(here, root, call);
  if (!mine) copy_back(data, here);
}

void NativeBackend::reduce_through_host(Piece in, Piece out, Op op, Rank root, const Call& call) {
  const cuda::OnStream on(stream_of(call));
  const bool gets = root == rank();
  const Piece from = host_copy(0, in, true), to = gets && on_gpu(out) ? host_copy(1, out, false) : out;
  cuda::synchronize(in.device);
  reduce(from, to, op, root, call);
  if (gets && on_gpu(out)) copy_back(out, to);
}

}  // namespace cohort::collective
