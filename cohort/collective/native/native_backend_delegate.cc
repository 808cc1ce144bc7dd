// Collectives that the native backend delegates to another one: which ones, how buffers are prepared for it, and how its failures are
// handled.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "cohort/base/log.h"
#include "cohort/collective/native/native_backend.h"
#include "cohort/net/transport/transport_base.h"

namespace cohort::collective {
namespace {

constexpr std::uint32_t kOpeningTag = ~0u - 1;  // of messages while a backend opens; callers' tags are far smaller
constexpr Seconds kRootCause{1.0};              // how long a backend's broken connection waits for our links to report which rank was lost
constexpr auto kPollInterval = std::chrono::milliseconds(5);

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter || collective == Collective::reduce;
}

bool overlap(Piece a, Piece b) {
  const auto* const a0 = static_cast<const std::byte*>(a.data);
  const auto* const b0 = static_cast<const std::byte*>(b.data);
  return a.count > 0 && b.count > 0 && a0 < b0 + b.bytes() && b0 < a0 + a.bytes();
}

bool real(Dtype dtype) { return dtype == Dtype::f16 || dtype == Dtype::bf16 || dtype == Dtype::f32 || dtype == Dtype::f64; }

// bool as backends know it: bytes of 0 and 1, whose sum is the greater one and whose product the lesser.
Op backend_op(Dtype dtype, Op op) {
  if (dtype != Dtype::boolean) return op == Op::average ? Op::sum : op;
  return op == Op::sum || op == Op::max ? Op::max : Op::min;
}
Piece backend_piece(Piece piece) {
  if (piece.dtype == Dtype::boolean) piece.dtype = Dtype::u8;
  return piece;
}

// Messages in flight while a backend opens; none is waited for before all are sent, so that two ranks may send to each other at once.
struct OpeningMessages {
  std::deque<std::vector<std::byte>> bytes;
  std::vector<net::Pending> sends;
};

}  // namespace

void NativeBackend::attach_backend(Deadline deadline) {
  OpeningMessages messages;
  BackendContext context{.rank = peers_.rank(), .channel = peers_.channel(), .job_size = peers_.links().size()};
  for (const Rank member : peers_.members()) context.members.push_back(member.value);
  context.options = backend_options_;
  context.wait_options = {deadline, [this] { peers_.check_others(); }};
  context.send = [this, &messages](int to, ConstBytes bytes) {
    const auto& kept = messages.bytes.emplace_back(bytes.begin(), bytes.end());
    const Tag tag{peers_.channel(), kOpeningTag};
    messages.sends.push_back(peers_.links().link(peers_.members()[static_cast<std::size_t>(to)]).send(kept, tag));
  };
  context.receive = [this, deadline] {
    Message message = next_message({peers_.channel(), kOpeningTag, kOpeningTag}, deadline);
    const auto& members = peers_.members();
    const auto from = std::find(members.begin(), members.end(), message.from) - members.begin();
    return std::pair(static_cast<int>(from), std::move(message.bytes));
  };
  backend_ = open_backend(backend_options_.name, context);
  for (auto& send : messages.sends) peers_.finish(send, deadline);
  if (peers_.rank() == 0 && peers_.channel() == kWorldChannel)
    log_info("backend: {}: {}; fingerprints, aborts, deadlines and what it does not carry go over {}", backend_options_.name,
             backend_->text(), transport());
}

bool NativeBackend::delegated(Collective collective, Piece piece, Op op, std::size_t largest) const {
  if (piece.device.kind != DeviceKind::cpu && piece.dtype == Dtype::boolean && reduces(collective))
    return false;  // only our kernels normalise bytes to 0 and 1
  return backend_ != nullptr &&
         backend_->carries(collective, backend_piece(piece).dtype, backend_op(piece.dtype, op), piece.device, largest);
}

void NativeBackend::check_piece(Piece piece, Collective collective, Op op) const {
  if (piece.data == nullptr && piece.count > 0) throw_failure(Kind::usage, "{}: null pointer with a count above zero", name_of(collective));
  if (piece.device.kind == DeviceKind::cpu || delegated(collective, piece, op, piece.count)) return;
  if (backend_ == nullptr)
    throw_failure(Kind::usage, "{}: the native backend works on CPU memory; copy the data to the host or use backend: nccl",
                  name_of(collective));
  throw_failure(Kind::usage, "{}: backend: {} does not do this on a GPU with {} and {}; copy the data to the host", name_of(collective),
                backend_options_.name, name_of(piece.dtype), name_of(op));
}

void NativeBackend::compare_fingerprints_first() {
  if (size() > 1) agree();
}

template <class Body>
void NativeBackend::run_on_backend(Body body) {
  try {
    body(WaitOptions{peers_.deadline(), [this] { peers_.check_others(); }, stream_});
  } catch (const Failure& failure) {
    Error error = failure.error();
    try {  // a backend reports that a connection broke; our links report whose process ended
      for (const auto limit = Deadline::in(kRootCause); error.kind == Kind::system && !limit.passed();
           std::this_thread::sleep_for(kPollInterval))
        peers_.check();
    } catch (const Failure& cause) {
      error = cause.error();
    }
    peers_.links().abort(error);  // the others get the cause before the backend's connections close
    if (!backend_->abort())
      log_warning("{} cannot cancel {}: its buffers stay in use until this process ends", backend_->text(), peers_.print().text());
    throw Failure{std::move(error)};
  }
}

// The input as a backend takes it: scaled, bool as bytes, apart from the output. `how` keeps what is still to be done afterwards.
Piece NativeBackend::prepared(Piece in, Piece out, Reduction& how, bool may_change) {
  if (in.device.kind != DeviceKind::cpu) {
    if (how.pre * how.post != 1.0 && (how.op != Op::sum || !real(in.dtype)))
      throw_failure(Kind::usage, "backend: {} scales sums of reals only on a GPU", backend_options_.name);
    how.post *= how.pre;  // a sum may be scaled afterwards
    return in;
  }
  const bool apart = !may_change && overlap(in, out);
  if (how.pre != 1.0 || in.dtype == Dtype::boolean || apart) {
    const void* const source = in.data;
    if (!may_change) in.data = peers_.scratch(in.bytes());
    void* const target = in.data;
    kernels().reduce({in.dtype, how.op, how.pre, 1.0}, {&source, 1}, {&target, 1}, in.count);
  }
  if (in.dtype == Dtype::boolean) how.post = 1.0;
  how.op = backend_op(in.dtype, how.op);
  return backend_piece(in);
}

void NativeBackend::finished(Piece out, const Reduction& how) {
  if (how.post == 1.0 || out.count == 0) return;
  out.device.kind == DeviceKind::cpu ? kernels().scale(out.dtype, out.data, out.count, how.post) : backend_->scale(out, how.post, stream_);
}

void NativeBackend::all_reduce_on_backend(Piece data, Reduction how) {
  const Piece ready = prepared(data, data, how, true);
  if (data.count > 0) run_on_backend([&](const WaitOptions& wait_options) { backend_->all_reduce(ready, how.op, wait_options); });
  finished(data, how);
}

void NativeBackend::reduce_scatter_on_backend(Piece in, Piece out, const Layout& layout, Reduction how) {
  compare_fingerprints_first();
  const Piece ready = prepared(in, out, how, false);
  if (in.count > 0)
    run_on_backend(
        [&](const WaitOptions& wait_options) { backend_->reduce_scatter(ready, backend_piece(out), how.op, layout, wait_options); });
  finished(out, how);
}

void NativeBackend::all_gather_on_backend(Piece in, Piece out, const Layout& layout) {
  compare_fingerprints_first();
  if (in.device.kind == DeviceKind::cpu && overlap(in, out)) {
    const Piece copy{peers_.scratch(in.bytes()), in.count, in.dtype, in.device};
    copy_piece(in, copy);
    in = copy;
  }
  if (out.count > 0)
    run_on_backend(
        [&](const WaitOptions& wait_options) { backend_->all_gather(backend_piece(in), backend_piece(out), layout, wait_options); });
}

void NativeBackend::broadcast_on_backend(Piece data, int root) {
  compare_fingerprints_first();
  if (data.count > 0)
    run_on_backend([&](const WaitOptions& wait_options) { backend_->broadcast(backend_piece(data), root, wait_options); });
}

void NativeBackend::reduce_on_backend(Piece in, Piece out, int root, Reduction how) {
  compare_fingerprints_first();
  const Piece ready = prepared(in, out, how, false);
  if (in.count > 0)
    run_on_backend([&](const WaitOptions& wait_options) { backend_->reduce(ready, backend_piece(out), how.op, root, wait_options); });
  if (peers_.rank() == root) finished(out, how);
}

void NativeBackend::all_to_all_on_backend(Piece in, Piece out, const Layout& sends, const Layout& recvs) {
  const int n = size();
  CountMatrix matrix{n, std::vector<std::uint64_t>(static_cast<std::size_t>(2 * n * n))};
  std::vector<std::uint64_t> row(sends.counts.begin(), sends.counts.end());
  row.insert(row.end(), recvs.counts.begin(), recvs.counts.end());
  const Piece mine{row.data(), row.size(), Dtype::i64, Device::cpu};
  const Piece whole{matrix.cells.data(), matrix.cells.size(), Dtype::i64, Device::cpu};
  const Layout rows = Layout::even(n, row.size());
  n > 1 && peers_.control_block() != nullptr ? shared::all_gather(peers_, mine, whole, rows)
                                             : linked::all_gather(peers_, mine, whole, rows);
  matrix.check();
  std::size_t largest = 0;  // of any rank, so that all come to the same decision
  for (int r = 0; r < n; ++r) {
    std::size_t out_of = 0, into = 0;
    for (int other = 0; other < n; ++other) out_of += matrix.sends(r, other), into += matrix.expects(r, other);
    largest = std::max({largest, out_of, into});
  }
  if (largest == 0) return;
  if (!delegated(Collective::all_to_all, in, Op::sum, largest))
    return peers_.control_block() != nullptr ? shared::all_to_all(peers_, in, out, sends, recvs)
                                             : linked::all_to_all(peers_, in, out, sends, recvs);
  if (in.device.kind == DeviceKind::cpu && overlap(in, out)) {
    const Piece copy{peers_.scratch(in.bytes()), in.count, in.dtype, in.device};
    copy_piece(in, copy);
    in = copy;
  }
  run_on_backend(
      [&](const WaitOptions& wait_options) { backend_->all_to_all(backend_piece(in), backend_piece(out), sends, recvs, wait_options); });
}

}  // namespace cohort::collective
