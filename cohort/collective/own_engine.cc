// The own engine with another one underneath: who carries what, what is made ready for it, and what becomes of its failures.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "cohort/base/log.h"
#include "cohort/collective/own.h"
#include "cohort/net/hub.h"

namespace cohort::collective {
namespace {

constexpr std::uint32_t kMeetingTag = ~0u - 1;  // of messages while an engine opens; callers' tags end far below
constexpr Seconds kRootCause{1.0};              // how long an engine's broken connection waits for our links to say who was lost
constexpr auto kLook = std::chrono::milliseconds(5);

bool reduces(Verb verb) { return verb == Verb::all_reduce || verb == Verb::reduce_scatter || verb == Verb::reduce; }

bool overlap(Piece a, Piece b) {
  const auto* const a0 = static_cast<const std::byte*>(a.data);
  const auto* const b0 = static_cast<const std::byte*>(b.data);
  return a.count > 0 && b.count > 0 && a0 < b0 + b.bytes() && b0 < a0 + a.bytes();
}

bool real(Dtype dtype) { return dtype == Dtype::f16 || dtype == Dtype::bf16 || dtype == Dtype::f32 || dtype == Dtype::f64; }

// bool as engines know it: bytes of 0 and 1, whose sum is the greater one and whose product the lesser.
Op op_under(Dtype dtype, Op op) {
  if (dtype != Dtype::boolean) return op == Op::average ? Op::sum : op;
  return op == Op::sum || op == Op::max ? Op::max : Op::min;
}
Piece piece_under(Piece piece) {
  if (piece.dtype == Dtype::boolean) piece.dtype = Dtype::u8;
  return piece;
}

// Messages on their way while an engine opens; nobody waits for one before all are sent, so that two ranks may tell each other at once.
struct Meeting {
  std::deque<std::vector<std::byte>> bytes;
  std::vector<net::Pending> sends;
};

}  // namespace

void Own::open_underneath(Deadline deadline) {
  Meeting meeting;
  EngineSite site{.rank = peers_.rank(), .channel = peers_.channel(), .job_size = peers_.mesh().size()};
  for (const Rank member : peers_.members()) site.members.push_back(member.value);
  site.under = under_;
  site.watch = {deadline, [this] { peers_.check_others(); }};
  site.tell = [this, &meeting](int to, ConstBytes bytes) {
    const auto& kept = meeting.bytes.emplace_back(bytes.begin(), bytes.end());
    const Tag tag{peers_.channel(), kMeetingTag};
    meeting.sends.push_back(peers_.mesh().link(peers_.members()[static_cast<std::size_t>(to)]).send(kept, tag));
  };
  site.hear = [this, deadline] {
    Message message = next_message({peers_.channel(), kMeetingTag, kMeetingTag}, deadline);
    const auto& members = peers_.members();
    const auto from = std::find(members.begin(), members.end(), message.from) - members.begin();
    return std::pair(static_cast<int>(from), std::move(message.bytes));
  };
  engine_ = open_engine(under_.comm, site);
  for (auto& send : meeting.sends) peers_.finish(send, deadline);
  if (peers_.rank() == 0 && peers_.channel() == kWorldChannel)
    log_info("comm: {}: {}; fingerprints, aborts, deadlines and what it does not carry go over {}", under_.comm, engine_->text(),
             transport());
}

bool Own::carried(Verb verb, Piece piece, Op op, std::size_t largest) const {
  if (piece.device != Device::cpu && piece.dtype == Dtype::boolean && reduces(verb)) return false;  // our kernels make 0 and 1 of bytes
  return engine_ != nullptr && engine_->carries(verb, piece_under(piece).dtype, op_under(piece.dtype, op), piece.device, largest);
}

void Own::check_piece(Piece piece, Verb verb, Op op) const {
  if (piece.data == nullptr && piece.count > 0) throw_failure(Kind::usage, "{}: null pointer with a count above zero", name_of(verb));
  if (piece.device == Device::cpu || carried(verb, piece, op, piece.count)) return;
  if (engine_ == nullptr)
    throw_failure(Kind::usage, "{}: the own engine works on CPU memory; copy the data to the host or use comm: nccl", name_of(verb));
  throw_failure(Kind::usage, "{}: comm: {} does not do this on a GPU with {} and {}; copy the data to the host", name_of(verb), under_.comm,
                name_of(piece.dtype), name_of(op));
}

void Own::agree_first() {
  if (size() > 1) agree();
}

template <class Body>
void Own::underneath(Body body) {
  try {
    body(Watch{peers_.deadline(), [this] { peers_.check_others(); }, stream_});
  } catch (const Failure& failure) {
    Error error = failure.error();
    try {  // an engine says that a connection broke; our links say whose process ended
      for (const auto limit = Deadline::in(kRootCause); error.kind == Kind::system && !limit.passed(); std::this_thread::sleep_for(kLook))
        peers_.check();
    } catch (const Failure& cause) {
      error = cause.error();
    }
    peers_.mesh().abort(error);  // the others hear it before the engine's connections go
    if (!engine_->abort())
      log_warning("{} cannot call off {}: its buffers stay in use until this process ends", engine_->text(), peers_.print().text());
    throw Failure{std::move(error)};
  }
}

// The input as an engine takes it: scaled, bool as bytes, apart from the output. `how` keeps what is left to do.
Piece Own::prepared(Piece in, Piece out, Reduction& how, bool may_change) {
  if (in.device != Device::cpu) {
    if (how.pre * how.post != 1.0 && (how.op != Op::sum || !real(in.dtype)))
      throw_failure(Kind::usage, "comm: {} scales sums of reals only on a GPU", under_.comm);
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
  how.op = op_under(in.dtype, how.op);
  return piece_under(in);
}

void Own::finished(Piece out, const Reduction& how) {
  if (how.post == 1.0 || out.count == 0) return;
  out.device == Device::cpu ? kernels().scale(out.dtype, out.data, out.count, how.post) : engine_->scale(out, how.post, stream_);
}

void Own::all_reduce_under(Piece data, Reduction how) {
  const Piece ready = prepared(data, data, how, true);
  if (data.count > 0) underneath([&](const Watch& watch) { engine_->all_reduce(ready, how.op, watch); });
  finished(data, how);
}

void Own::reduce_scatter_under(Piece in, Piece out, const Layout& layout, Reduction how) {
  agree_first();
  const Piece ready = prepared(in, out, how, false);
  if (in.count > 0) underneath([&](const Watch& watch) { engine_->reduce_scatter(ready, piece_under(out), how.op, layout, watch); });
  finished(out, how);
}

void Own::all_gather_under(Piece in, Piece out, const Layout& layout) {
  agree_first();
  if (in.device == Device::cpu && overlap(in, out)) {
    const Piece copy{peers_.scratch(in.bytes()), in.count, in.dtype, in.device};
    copy_piece(in, copy);
    in = copy;
  }
  if (out.count > 0) underneath([&](const Watch& watch) { engine_->all_gather(piece_under(in), piece_under(out), layout, watch); });
}

void Own::broadcast_under(Piece data, int root) {
  agree_first();
  if (data.count > 0) underneath([&](const Watch& watch) { engine_->broadcast(piece_under(data), root, watch); });
}

void Own::reduce_under(Piece in, Piece out, int root, Reduction how) {
  agree_first();
  const Piece ready = prepared(in, out, how, false);
  if (in.count > 0) underneath([&](const Watch& watch) { engine_->reduce(ready, piece_under(out), how.op, root, watch); });
  if (peers_.rank() == root) finished(out, how);
}

void Own::all_to_all_under(Piece in, Piece out, const Layout& sends, const Layout& recvs) {
  const int n = size();
  Matrix matrix{n, std::vector<std::uint64_t>(static_cast<std::size_t>(2 * n * n))};
  std::vector<std::uint64_t> row(sends.counts.begin(), sends.counts.end());
  row.insert(row.end(), recvs.counts.begin(), recvs.counts.end());
  const Piece mine{row.data(), row.size(), Dtype::i64, Device::cpu};
  const Piece whole{matrix.cells.data(), matrix.cells.size(), Dtype::i64, Device::cpu};
  const Layout rows = Layout::even(n, row.size());
  n > 1 && peers_.board() != nullptr ? shared::all_gather(peers_, mine, whole, rows) : linked::all_gather(peers_, mine, whole, rows);
  matrix.check();
  std::size_t largest = 0;  // of any rank, so that all come to the same decision
  for (int r = 0; r < n; ++r) {
    std::size_t out_of = 0, into = 0;
    for (int other = 0; other < n; ++other) out_of += matrix.sends(r, other), into += matrix.expects(r, other);
    largest = std::max({largest, out_of, into});
  }
  if (largest == 0) return;
  if (!carried(Verb::all_to_all, in, Op::sum, largest))
    return peers_.board() != nullptr ? shared::all_to_all(peers_, in, out, sends, recvs)
                                     : linked::all_to_all(peers_, in, out, sends, recvs);
  if (in.device == Device::cpu && overlap(in, out)) {
    const Piece copy{peers_.scratch(in.bytes()), in.count, in.dtype, in.device};
    copy_piece(in, copy);
    in = copy;
  }
  underneath([&](const Watch& watch) { engine_->all_to_all(piece_under(in), piece_under(out), sends, recvs, watch); });
}

}  // namespace cohort::collective
