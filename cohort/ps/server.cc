#include "cohort/ps/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/ps/request_failure.h"
#include "cohort/ps/rows.h"

namespace cohort::ps {
namespace {

Piece bytes_of(std::span<std::byte> bytes) { return {bytes.data(), bytes.size(), Dtype::u8, Device::cpu}; }
Piece as_bytes(const Piece& piece) { return {piece.data, piece.bytes(), Dtype::u8, Device::cpu}; }

std::vector<std::byte> copy_of(const Piece& values) {
  const auto* const first = static_cast<const std::byte*>(values.data);
  return {first, first + values.bytes()};
}

constexpr std::size_t row_bytes(std::size_t width) { return sizeof(std::uint64_t) + width * sizeof(float); }

Stamp stamp_of(int worker, const Request& r) { return {worker, r.clock, r.seq, static_cast<std::int64_t>(r.first)}; }

}  // namespace

struct Server::Peer {
  enum class State : std::uint8_t { listening, receiving, refusing, waiting, gone };
  Rank rank;
  State state = State::listening;
  std::array<std::byte, kRequestBytes> bytes{};
  Request request{};
  std::vector<std::byte> payload;
  std::array<std::byte, 2> refused{};  // where one of another length would land
  std::optional<Error> failed{};       // what a request of it could not be met for: its reads fail from then on
  bool lost = false;
};

struct Server::Shard {
  Shard(std::vector<std::byte> as_defined, const Definition& d, std::unique_ptr<Store> store)
      : definition(std::move(as_defined)),
        name(d.dense.name),
        table(make_gate(d.clock), static_cast<int>(d.workers), std::move(store), d.average) {}
  const std::vector<std::byte> definition;
  const std::string name;
  Table table;
  DenseStore* dense = nullptr;  // one of the two
  RowStore* rows = nullptr;
};

struct Server::Outgoing {
  int worker = 0;
  std::array<std::byte, kReplyBytes> head{};
  std::vector<std::byte> payload;
  collective::Pending first{};  // the head, while the payload is what is waited for
};

Server::Server(collective::PeerChannel& channel, std::vector<Rank> workers, std::size_t most_bytes)
    : channel_(channel), most_bytes_(most_bytes), pendings_(workers.size()) {
  if (workers.empty()) throw_failure(Kind::usage, "a parameter server without workers");
  for (const Rank rank : workers) {
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->rank = rank;
  }
}

Server::~Server() = default;

void Server::run() {
  for (std::size_t w = 0; w < peers_.size(); ++w) listen(static_cast<int>(w));
  const auto idle = [](const collective::Pending& p) { return !p; };
  while (!std::ranges::all_of(pendings_, idle)) {
    const std::size_t ended = channel_.wait_any(pendings_, Deadline{});
    if (ended < peers_.size())
      on_incoming(static_cast<int>(ended));
    else
      drop_outgoing(ended);
    while (go_on()) {
    }
  }
}

void Server::listen(int worker) {
  Peer& p = peer(worker);
  p.state = Peer::State::listening;
  pendings_[static_cast<std::size_t>(worker)] = channel_.recv(p.rank, kRequestTag, bytes_of(p.bytes));
}

void Server::on_incoming(int worker) {
  Peer& p = peer(worker);
  try {
    pendings_[static_cast<std::size_t>(worker)].wait(Deadline{});
  } catch (const collective::Interrupted&) {
    throw;
  } catch (const Failure& failure) {
    const bool refused = p.state == Peer::State::refusing && failure.kind() == Kind::corrupt;
    if (!refused) return lose(worker, failure.error());
  }
  p.state == Peer::State::listening ? on_request(worker) : handle(worker);
}

void Server::on_request(int worker) {
  Peer& p = peer(worker);
  try {
    p.request = decode_request(p.bytes);
  } catch (const Failure& failure) {
    return lose(worker, failure.error());  // where its next request begins nobody knows
  }
  if (must_wait(worker)) {
    p.state = Peer::State::waiting;
    return;
  }
  receive_payload(worker);
}

bool Server::must_wait(int worker) {
  const Request& r = peer(worker).request;
  if ((r.verb != Verb::push && r.verb != Verb::mark) || peer(worker).failed) return false;
  const auto found = shards_.find(r.table);
  return found != shards_.end() && found->second->table.held(worker);
}

// What it waits for may never come.
bool Server::may_go_on(int worker) {
  Peer& p = peer(worker);
  if (p.state != Peer::State::waiting) return false;
  if (!must_wait(worker)) return true;
  p.failed = lost_among(shard_of(p.request));
  return p.failed.has_value();
}

// Dense values land where they are staged, all else in memory of the peer. None: they are refused.
std::optional<Piece> Server::place_of_payload(int worker) {
  Peer& p = peer(worker);
  if (p.failed) return {};
  const std::size_t expected = payload_of(p.request);
  if (p.request.payload != expected)
    throw_failure(Kind::corrupt, "table {}: a message of {} bytes where it takes {}", p.request.table, p.request.payload, expected);
  if (p.request.verb == Verb::push) {
    Shard& shard = shard_of(p.request);
    if (shard.table.push(stamp_of(worker, p.request)) != Admission::fresh)
      throw_failure(Kind::corrupt, "table {}: push {} came out of turn", shard.name, p.request.seq);
    if (shard.dense != nullptr) return as_bytes(shard.dense->staging(worker));
  }
  p.payload.resize(expected);
  return bytes_of(p.payload);
}

void Server::receive_payload(int worker) {
  Peer& p = peer(worker);
  p.state = Peer::State::receiving;
  std::optional<Piece> place;
  if (auto error = failure_in([&] { place = place_of_payload(worker); })) p.failed = std::move(error);
  if (p.request.payload == 0) return handle(worker);
  if (!place || p.failed) return refuse_payload(worker);
  pendings_[static_cast<std::size_t>(worker)] = channel_.recv(p.rank, kPayloadTag, *place);
}

// A receive of another length takes the message out of the way, whatever its size.
void Server::refuse_payload(int worker) {
  Peer& p = peer(worker);
  p.state = Peer::State::refusing;
  const std::size_t other = p.request.payload == 1 ? 2 : 1;
  pendings_[static_cast<std::size_t>(worker)] = channel_.recv(p.rank, kPayloadTag, bytes_of(std::span(p.refused).first(other)));
}

void Server::handle(int worker) {
  Peer& p = peer(worker);
  if (!p.failed || p.request.verb == Verb::bye)
    if (auto error = failure_in([&] { carry_out(worker); })) p.failed = std::move(error);
  const Verb verb = p.request.verb;
  const bool asks = verb == Verb::pull || verb == Verb::fetch || verb == Verb::put || (verb == Verb::mark && p.request.which != 0);
  if (p.failed && asks) send(worker, {.failed = true, .kind = p.failed->kind, .table = p.request.table, .text = p.failed->what}, {});
  if (p.state != Peer::State::gone) listen(worker);
}

void Server::carry_out(int worker) {
  Peer& p = peer(worker);
  switch (p.request.verb) {
    case Verb::make: return make(worker);
    case Verb::push: return push_rows(worker);
    case Verb::mark: return mark(worker);
    case Verb::pull: return parked_.push_back({worker, p.request, std::exchange(p.payload, {})});
    case Verb::put: {
      const Piece into = values_of(p.request);
      if (into.count > 0) std::memcpy(into.data, p.payload.data(), into.bytes());
      return send(worker, {.table = p.request.table}, {});
    }
    case Verb::fetch: return fetch(worker);
    case Verb::bye: return leave(worker);
  }
}

// --- requests

Server::Shard& Server::shard_of(const Request& request) {
  const auto found = shards_.find(request.table);
  if (found == shards_.end()) throw_failure(Kind::usage, "table {} was not made on this server", request.table);
  return *found->second;
}

std::size_t Server::payload_of(const Request& r) {
  if (r.verb == Verb::make) return std::min<std::size_t>(r.payload, kMostDefinitionBytes);
  if (r.verb == Verb::bye) return 0;
  const Shard& shard = shard_of(r);
  const bool of_rows = shard.rows != nullptr && (r.verb == Verb::push || r.verb == Verb::pull);
  if (of_rows && (r.count > kMostRows || r.count > kMostRowsBytes / row_bytes(shard.rows->spec().width)))
    throw_failure(Kind::usage, "table {}: a message of {} rows of {}; it has at most {} rows and {} bytes: push and pull fewer at a time",
                  shard.name, r.count, shard.rows->spec().width, kMostRows, kMostRowsBytes);
  switch (r.verb) {
    case Verb::push: return of_rows ? r.count * row_bytes(shard.rows->spec().width) : shard.dense->values().bytes();
    case Verb::pull: return of_rows ? r.count * sizeof(std::uint64_t) : 0;
    case Verb::mark: return r.payload == 0 || of_rows || shard.dense == nullptr ? 0 : (shard.dense->spec().parts.size() + 7) / 8;
    case Verb::put: return values_of(r).bytes();
    default: return 0;
  }
}

Piece Server::values_of(const Request& r) {
  Shard& shard = shard_of(r);
  if (shard.dense == nullptr) throw_failure(Kind::usage, "table {}: rows are pushed and pulled by their ids", shard.name);
  const DenseStore& store = *shard.dense;
  if (r.which > store.states() || r.first > store.spec().count || r.count > store.spec().count - r.first)
    throw_failure(Kind::usage, "table {}: elements {} + {} of state {} are none of it", shard.name, r.first, r.count, r.which);
  return (r.which == 0 ? store.values() : store.state(r.which - 1)).part(r.first, r.count);
}

void Server::make(int worker) {
  Peer& p = peer(worker);
  const auto found = shards_.find(p.request.table);
  if (found != shards_.end()) {
    if (found->second->definition != p.payload)
      throw_failure(Kind::usage,
                    "table {}: rank {} defines it otherwise than the worker that came first: give all workers the same options",
                    found->second->name, p.rank.value);
    return;
  }
  const Definition d = decode_definition(p.payload);
  if (d.workers != peers_.size())
    throw_failure(Kind::usage, "table {}: it is for {} workers, and this server has {}", d.dense.name, d.workers, peers_.size());
  const auto n = static_cast<int>(d.workers);
  std::unique_ptr<Store> store;
  DenseStore* dense = nullptr;
  RowStore* rows = nullptr;
  if (row_bytes(d.width) > kMostRowsBytes)
    throw_failure(Kind::usage, "table {}: rows of {} elements; a row takes at most {} bytes", d.dense.name, d.width, kMostRowsBytes);
  if (d.width > 0) {
    if (make_gate(d.clock).sends)
      throw_failure(Kind::usage, "table {}: {} sends whole tables, and nobody reads all rows; take ssp", d.dense.name, d.clock);
    auto made = std::make_unique<RowStore>(
        RowSpec{.name = d.dense.name, .width = d.width, .rule = d.dense.rule, .most_bytes = most_bytes_ - std::min(most_bytes_, bytes_)},
        n);
    rows = made.get();
    store = std::move(made);
  } else {
    const std::size_t runs = 1 + optim::make(d.dense.rule)->state_names().size() + peers_.size();
    if (d.dense.count > (most_bytes_ - std::min(most_bytes_, bytes_)) / sizeof(double) / runs)
      throw_failure(Kind::system, "table {}: {} elements for {} workers are more than the {} bytes that this server may have", d.dense.name,
                    d.dense.count, d.workers, most_bytes_);
    auto made = std::make_unique<DenseStore>(d.dense, n);
    bytes_ += d.dense.count * sizeof(double) * runs;
    dense = made.get();
    store = std::move(made);
  }
  auto shard = std::make_unique<Shard>(p.payload, d, std::move(store));
  shard->dense = dense;
  shard->rows = rows;
  shards_.emplace(p.request.table, std::move(shard));
}

// Dense ones are staged by having come.
void Server::push_rows(int worker) {
  const Peer& p = peer(worker);
  Shard& shard = shard_of(p.request);
  if (shard.dense != nullptr) return shard.dense->mark_staged(worker);
  std::vector<std::uint64_t> ids(p.request.count);
  std::vector<float> values(p.request.count * shard.rows->spec().width);
  if (ids.empty()) return;
  std::memcpy(ids.data(), p.payload.data(), ids.size() * sizeof(std::uint64_t));
  std::memcpy(values.data(), p.payload.data() + ids.size() * sizeof(std::uint64_t), values.size() * sizeof(float));
  shard.rows->stage(worker, ids, values);
}

void Server::mark(int worker) {
  const Peer& p = peer(worker);
  Shard& shard = shard_of(p.request);
  Update update{.go = p.request.go, .lr = p.request.lr, .scale = p.request.scale};
  if (!p.payload.empty() && p.request.payload > 0) update.missing = decode_missing(p.payload, shard.dense->spec().parts.size());
  if (shard.table.mark(stamp_of(worker, p.request), std::move(update)) != Admission::fresh)
    throw_failure(Kind::corrupt, "table {}: mark {} came out of turn", shard.name, p.request.seq);
  if (shard.table.gate().sends)
    parked_.push_back({worker, {.verb = Verb::pull, .table = p.request.table, .clock = shard.table.clock().at(worker)}, {}});
}

void Server::fetch(int worker) {
  const Request& r = peer(worker).request;
  auto values = copy_of(values_of(r));
  send(worker, {.table = r.table, .clock = r.clock}, std::move(values));
}

// --- reads

bool Server::go_on() {
  bool some = false;
  for (std::size_t w = 0; w < peers_.size(); ++w) {
    const int worker = static_cast<int>(w);
    if (!may_go_on(worker)) continue;
    receive_payload(worker);
    some = true;
  }
  const auto before = parked_.size();
  std::vector<Parked> all = std::exchange(parked_, {});
  for (Parked& parked : all)
    if (!go_on_with(parked)) parked_.push_back(std::move(parked));
  return some || parked_.size() != before;
}

bool Server::go_on_with(const Parked& parked) {
  if (peer(parked.worker).state == Peer::State::gone) return true;
  const auto slack = parked.request.slack == Request::kOfTable ? std::nullopt : std::optional(parked.request.slack);
  if (shard_of(parked.request).table.opens(parked.worker, parked.request.clock, slack)) {
    const auto failed = failure_in([&] { answer(parked); });
    if (failed) refuse(parked, *failed);
    return true;
  }
  const auto why = hopeless(parked);
  if (why) refuse(parked, *why);
  return why.has_value();
}

void Server::refuse(const Parked& parked, const Error& why) {
  const Request& r = parked.request;
  send(parked.worker, {.failed = true, .kind = why.kind, .table = r.table, .clock = r.clock, .text = why.what}, {});
}

std::optional<Error> Server::hopeless(const Parked& parked) {
  const Shard& shard = shard_of(parked.request);
  const Clock& clock = shard.table.clock();
  if (clock.at(parked.worker) < shard.table.gate().own(parked.request.clock))
    return Error{Kind::usage, fmt::format("table {}: a read at clock {} before clock {} was marked", shard.name, parked.request.clock,
                                          parked.request.clock - 1)};
  return lost_among(shard);
}

// The first that a table waits for in vain.
std::optional<Error> Server::lost_among(const Shard& shard) {
  const Clock& clock = shard.table.clock();
  for (std::size_t w = 0; w < peers_.size(); ++w)
    if (peers_[w]->lost && clock.has(static_cast<int>(w)))
      return Error{Kind::peer_lost,
                   fmt::format("the worker on rank {} was lost at clock {}, and {} lets nobody wait for less: start again from the last "
                               "checkpoint, or with clock=tap, which goes on without it",
                               peers_[w]->rank.value, clock.at(static_cast<int>(w)), shard.table.gate().spec),
                   peers_[w]->rank};
  return {};
}

void Server::answer(const Parked& parked) {
  Shard& shard = shard_of(parked.request);
  const Read read = shard.table.read(parked.worker);
  std::vector<std::byte> values;
  if (shard.dense != nullptr) {
    values = copy_of(shard.dense->values());
  } else {
    std::vector<std::uint64_t> ids(parked.request.count);
    if (!ids.empty()) std::memcpy(ids.data(), parked.ids.data(), ids.size() * sizeof(std::uint64_t));
    values.resize(ids.size() * shard.rows->spec().width * sizeof(float));
    shard.rows->read(ids, {reinterpret_cast<float*>(values.data()), values.size() / sizeof(float)});
  }
  send(parked.worker, {.table = parked.request.table, .clock = parked.request.clock, .low = read.low, .version = read.version},
       std::move(values));
}

void Server::send(int worker, Reply reply, std::vector<std::byte> payload) {
  reply.payload = payload.size();
  auto out = std::make_unique<Outgoing>();
  out->worker = worker;
  out->head = encode(reply);
  out->payload = std::move(payload);
  const std::uint32_t tag = kReplyTag + 2 * reply.table;
  const Rank to = peer(worker).rank;
  collective::Pending head = channel_.send(to, tag, bytes_of(out->head));
  if (!out->payload.empty()) {
    out->first = std::exchange(head, channel_.send(to, tag + 1, bytes_of(out->payload)));
  }
  outgoing_.push_back(std::move(out));
  pendings_.push_back(std::move(head));
}

// It has left, or its worker is gone: which of the two the next request of it says.
void Server::drop_outgoing(std::size_t slot) {
  try {
    pendings_[slot].wait(Deadline{});
  } catch (const collective::Interrupted&) {
    throw;
  } catch (const Failure&) {
  }
  const std::size_t place = slot - peers_.size();
  pendings_.erase(pendings_.begin() + static_cast<std::ptrdiff_t>(slot));
  outgoing_.erase(outgoing_.begin() + static_cast<std::ptrdiff_t>(place));
}

// --- workers that go

// It receives nothing any more: a read that it was sent without asking, say.
void Server::drop_outgoing_to(int worker) {
  for (std::size_t place = outgoing_.size(); place-- > 0;) {
    if (outgoing_[place]->worker != worker) continue;
    pendings_.erase(pendings_.begin() + static_cast<std::ptrdiff_t>(peers_.size() + place));
    outgoing_.erase(outgoing_.begin() + static_cast<std::ptrdiff_t>(place));
  }
}

void Server::leave(int worker) {
  peer(worker).state = Peer::State::gone;
  drop_outgoing_to(worker);
  for (auto& [number, shard] : shards_)
    if (shard->table.clock().has(worker)) shard->table.leave(worker);
}

void Server::lose(int worker, const Error&) {
  Peer& p = peer(worker);
  p.state = Peer::State::gone;
  p.lost = true;
  drop_outgoing_to(worker);
  for (auto& [number, shard] : shards_)
    if (!shard->table.gate().slack && shard->table.clock().has(worker)) shard->table.leave(worker);
}

}  // namespace cohort::ps
