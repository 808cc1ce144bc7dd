#include "cohort/ps/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "cohort/base/error.h"

namespace cohort::ps {
namespace {

Piece bytes_of(std::span<std::byte> bytes) { return {bytes.data(), bytes.size(), Dtype::u8, Device::cpu}; }
bool has_ended(collective::Pending& pending) { return !pending || pending.poll(); }
Piece as_bytes(const Piece& piece) { return {piece.data, piece.bytes(), Dtype::u8, Device::cpu}; }

// Small numbers are spread over all servers, too.
std::uint64_t mix(std::uint64_t id) {
  id = (id ^ (id >> 30)) * 0xbf58476d1ce4e5b9ULL;
  id = (id ^ (id >> 27)) * 0x94d049bb133111ebULL;
  return id ^ (id >> 31);
}

}  // namespace

// What is on its way to a server: destroyed once it has left.
struct Client::Sent {
  std::array<std::byte, kRequestBytes> head{};
  std::vector<std::byte> kept;
  const TableState* borrows = nullptr;  // its payload is the caller's memory until the table's mark()
  std::size_t server = 0;
  collective::Pending first, payload;
};

struct Client::Shard {
  std::size_t server = 0;
  std::size_t first = 0, count = 0;           // elements
  std::vector<std::size_t> places{};          // of rows: which of those asked for
  std::vector<float> values{};                // their values
  std::array<std::byte, kReplyBytes> head{};  // of its reply
  std::size_t expects = 0;                    // bytes behind that
  collective::Pending reply{}, payload{};
};

struct Client::TableState {
  TableId id = 0;
  std::string name{};
  Gate gate{};
  double lr = 0;
  std::size_t count = 0, width = 0;
  Dtype dtype = Dtype::f32;
  std::vector<Part> parts{};
  std::int64_t clock = 0;
  std::uint64_t updates = 0;  // before its first clock
  std::uint64_t seq = 0;
  bool sent_by_server = false;  // a read is on its way that nobody has asked for
  bool asked = false;
  std::span<float> into{};  // of rows
  std::vector<Shard> shards{};
};

Client::Client(collective::PeerChannel& channel, std::vector<Rank> servers, int worker, int workers, Seconds patience)
    : channel_(channel),
      servers_(std::move(servers)),
      worker_(worker),
      workers_(workers),
      patience_(patience),
      exceptions_(std::uncaught_exceptions()) {
  if (servers_.empty()) throw_failure(Kind::usage, "a client of no parameter server");
  if (worker < 0 || worker >= workers) throw_failure(Kind::usage, "worker {} of {}", worker, workers);
}

Client::~Client() {
  if (std::uncaught_exceptions() == exceptions_) bye();
}

Client::TableState& Client::state_of(TableId table) const {
  if (table >= tables_.size()) throw_failure(Kind::usage, "table {} was not made: there are {}", table, tables_.size());
  return *tables_[table];
}

std::int64_t Client::clock(TableId table) const { return state_of(table).clock; }
bool Client::begun(TableId table) const { return state_of(table).seq > 0; }

Client::TableState& Client::add(std::unique_ptr<TableState> table) {
  table->id = static_cast<TableId>(tables_.size());
  if (table->id >= kMostTables) throw_failure(Kind::usage, "more than {} tables", kMostTables);
  tables_.push_back(std::move(table));
  return *tables_.back();
}

void Client::make_shards(TableState& table, const Definition& definition) {
  auto bytes = encode(definition);
  Shard& shard = table.shards.back();
  const Request request{.verb = Verb::make, .table = table.id, .payload = bytes.size()};
  send(table, shard, request, {}, std::move(bytes));
}

Client::TableId Client::make(const DenseOptions& o) {
  auto fresh = std::make_unique<TableState>();
  fresh->name = o.name;
  fresh->gate = make_gate(o.clock);
  fresh->lr = optim::make(o.rule)->default_lr();
  fresh->count = o.count;
  fresh->dtype = o.dtype;
  fresh->parts = o.parts.empty() ? std::vector<Part>{{.first = 0, .count = o.count}} : o.parts;
  const std::size_t n = servers_.size();
  const bool whole = o.edges.size() == n + 1 && o.edges.front() == 0 && o.edges.back() == o.count && std::ranges::is_sorted(o.edges);
  if (!o.edges.empty() && !whole)
    throw_failure(Kind::usage, "table {}: {} edges do not cut {} elements for {} servers", o.name, o.edges.size(), o.count, n);
  TableState& table = add(std::move(fresh));
  for (std::size_t s = 0; s < n; ++s) {
    const std::size_t first = o.edges.empty() ? o.count / n * s + o.count % n * s / n : o.edges[s];
    const std::size_t last = o.edges.empty() ? o.count / n * (s + 1) + o.count % n * (s + 1) / n : o.edges[s + 1];
    if (first == last) continue;
    table.shards.push_back({.server = s, .first = first, .count = last - first});
    Definition d{.dense = {.name = o.name, .dtype = o.dtype, .count = last - first, .parts = {}, .rule = o.rule},
                 .clock = o.clock,
                 .workers = static_cast<std::uint32_t>(workers_),
                 .average = o.average};
    for (const Part& part : table.parts) {
      const ElementRange both = ElementRange{part.first, part.count}.overlap({first, last - first});
      const std::size_t behind = d.dense.parts.empty() ? 0 : d.dense.parts.back().first + d.dense.parts.back().count;
      d.dense.parts.push_back({.first = both.count > 0 ? both.first - first : behind,
                               .count = both.count,
                               .lr_scale = part.lr_scale,
                               .weight_decay = part.weight_decay});
    }
    make_shards(table, d);
  }
  return table.id;
}

Client::TableId Client::make_rows(const RowOptions& o) {
  auto fresh = std::make_unique<TableState>();
  fresh->name = o.name;
  fresh->gate = make_gate(o.clock);
  fresh->lr = optim::make(o.rule)->default_lr();
  fresh->width = o.width;
  TableState& table = add(std::move(fresh));
  for (std::size_t s = 0; s < servers_.size(); ++s) {
    table.shards.push_back({.server = s});
    make_shards(table, {.dense = {.name = o.name, .dtype = Dtype::f32, .count = 0, .parts = {}, .rule = o.rule},
                        .width = static_cast<std::uint32_t>(o.width),
                        .clock = o.clock,
                        .workers = static_cast<std::uint32_t>(workers_),
                        .average = o.average});
  }
  return table.id;
}

// --- sending

void Client::send(TableState& table, const Shard& shard, Request request, const Piece& payload, std::vector<std::byte> kept,
                  bool borrowed) {
  auto sent = std::make_unique<Sent>();
  sent->kept = std::move(kept);
  const Piece data = sent->kept.empty() ? payload : bytes_of(sent->kept);
  request.table = table.id;
  request.payload = data.bytes();
  sent->head = encode(request);
  sent->borrows = borrowed ? &table : nullptr;
  sent->server = shard.server;
  const Rank to = servers_[shard.server];
  const std::lock_guard lock(mutex_);
  std::erase_if(sent_, [](const auto& s) { return s->borrows == nullptr && has_ended(s->first) && has_ended(s->payload); });
  sent->first = channel_.send(to, kRequestTag, bytes_of(sent->head));
  if (data.count > 0) sent->payload = channel_.send(to, kPayloadTag, as_bytes(data));
  sent_.push_back(std::move(sent));
}

// A payload of another length than the server takes is one that it refuses: the next read says why.
void Client::await_borrowed(TableState& table) {
  std::vector<std::unique_ptr<Sent>> mine;
  {
    const std::lock_guard lock(mutex_);
    for (auto& s : sent_)
      if (s->borrows == &table) mine.push_back(std::move(s));
    std::erase(sent_, nullptr);
  }
  const Deadline deadline = Deadline::in(patience_);
  for (auto& s : mine) try {
      if (s->first) s->first.wait(deadline);
      if (s->payload) s->payload.wait(deadline);
    } catch (const Failure& failure) {
      if (failure.kind() != Kind::corrupt) explain(failure, table, {.server = s->server});
    }
}

void Client::push(TableId id, const Piece& gradient) {
  TableState& table = state_of(id);
  if (gradient.count != table.count || gradient.dtype != table.dtype || table.width > 0)
    throw_failure(Kind::usage, "table {}: {} elements of {} are pushed, and it has {} of {}", table.name, gradient.count,
                  name_of(gradient.dtype), table.count, name_of(table.dtype));
  ++table.seq;
  for (const Shard& shard : table.shards)
    send(table, shard, {.verb = Verb::push, .clock = table.clock, .seq = table.seq, .first = table.updates},
         gradient.part(shard.first, shard.count), {}, true);
}

void Client::push_rows(TableId id, std::span<const std::uint64_t> ids, std::span<const float> gradients) {
  TableState& table = state_of(id);
  if (table.width == 0 || gradients.size() != ids.size() * table.width)
    throw_failure(Kind::usage, "table {}: {} values for {} rows of {}", table.name, gradients.size(), ids.size(), table.width);
  ++table.seq;
  std::vector<std::vector<std::size_t>> places(servers_.size());
  for (std::size_t i = 0; i < ids.size(); ++i) places[mix(ids[i]) % servers_.size()].push_back(i);
  for (const Shard& shard : table.shards) {
    const auto& mine = places[shard.server];
    const std::size_t row = table.width * sizeof(float);
    std::vector<std::byte> bytes(mine.size() * (sizeof(std::uint64_t) + row));
    std::byte *id_at = bytes.data(), *value_at = bytes.data() + mine.size() * sizeof(std::uint64_t);
    for (const std::size_t i : mine) {
      std::memcpy(id_at, &ids[i], sizeof(std::uint64_t));
      std::memcpy(value_at, gradients.data() + i * table.width, row);
      id_at += sizeof(std::uint64_t);
      value_at += row;
    }
    send(table, shard, {.verb = Verb::push, .clock = table.clock, .seq = table.seq, .first = table.updates, .count = mine.size()}, {},
         std::move(bytes));
  }
}

void Client::mark(TableId id) { mark(id, {.lr = state_of(id).lr}); }

void Client::mark(TableId id, const Update& update) {
  TableState& table = state_of(id);
  if (table.sent_by_server) collect(table);  // nobody wanted it
  await_borrowed(table);
  ++table.seq;
  for (Shard& shard : table.shards) {
    std::vector<std::byte> missing;
    if (std::ranges::find(update.missing, true) != update.missing.end()) missing = encode_missing(update.missing);
    if (table.gate.sends) listen(table, shard, {});
    send(table, shard,
         {.verb = Verb::mark,
          .go = update.go,
          .which = table.gate.sends ? 1U : 0U,
          .clock = table.clock,
          .seq = table.seq,
          .first = table.updates,
          .lr = update.lr,
          .scale = update.scale},
         {}, std::move(missing));
  }
  ++table.clock;
  table.sent_by_server = table.gate.sends;
}

// --- reading

// The receives come first, so that nothing waits for them.
void Client::listen(TableState& table, Shard& shard, const Piece& into) {
  const Rank from = servers_[shard.server];
  shard.reply = channel_.recv(from, kReplyTag + 2 * table.id, bytes_of(shard.head));
  shard.expects = into.bytes();
  if (into.count > 0) shard.payload = channel_.recv(from, kReplyTag + 2 * table.id + 1, as_bytes(into));
}

void Client::pull(TableId id, const Piece& into, std::optional<std::int64_t> slack) {
  TableState& table = state_of(id);
  if (into.count != table.count || into.dtype != table.dtype || table.width > 0)
    throw_failure(Kind::usage, "table {}: its {} elements of {} are pulled into {} of {}", table.name, table.count, name_of(table.dtype),
                  into.count, name_of(into.dtype));
  if (table.asked) throw_failure(Kind::usage, "table {}: it is pulled while it is pulled; wait() for the first", table.name);
  table.asked = true;
  for (Shard& shard : table.shards) {
    const Piece mine = into.part(shard.first, shard.count);
    if (table.sent_by_server) {
      shard.expects = mine.bytes();
      shard.payload = channel_.recv(servers_[shard.server], kReplyTag + 2 * table.id + 1, as_bytes(mine));
      continue;
    }
    listen(table, shard, mine);
    send(table, shard, {.verb = Verb::pull, .clock = table.clock, .slack = slack.value_or(Request::kOfTable)});
  }
}

void Client::pull_rows(TableId id, std::span<const std::uint64_t> ids, std::span<float> into) {
  TableState& table = state_of(id);
  if (table.width == 0 || into.size() != ids.size() * table.width)
    throw_failure(Kind::usage, "table {}: {} rows of {} are pulled into {} values", table.name, ids.size(), table.width, into.size());
  if (table.asked) throw_failure(Kind::usage, "table {}: it is pulled while it is pulled; wait() for the first", table.name);
  table.asked = true;
  table.into = into;
  for (Shard& shard : table.shards) shard.places.clear();
  for (std::size_t i = 0; i < ids.size(); ++i) table.shards[mix(ids[i]) % servers_.size()].places.push_back(i);
  for (Shard& shard : table.shards) {
    std::vector<std::byte> wanted(shard.places.size() * sizeof(std::uint64_t));
    for (std::size_t i = 0; i < shard.places.size(); ++i)
      std::memcpy(wanted.data() + i * sizeof(std::uint64_t), &ids[shard.places[i]], sizeof(std::uint64_t));
    shard.values.resize(shard.places.size() * table.width);
    listen(table, shard, piece(std::span(shard.values)));
    const std::size_t count = shard.places.size();
    send(table, shard, {.verb = Verb::pull, .clock = table.clock, .count = count}, {}, std::move(wanted));
  }
}

Reply Client::await(TableState& table, Shard& shard) {
  const Deadline deadline = Deadline::in(patience_);
  Reply reply;
  try {
    shard.reply.wait(deadline);
    reply = decode_reply(shard.head);
    if (!reply.failed && reply.payload != shard.expects && shard.payload)
      throw_failure(Kind::corrupt, "{} bytes came where {} were asked for", reply.payload, shard.expects);
    if (!reply.failed && shard.payload) shard.payload.wait(deadline);
  } catch (const Failure& failure) {
    give_up(table);
    explain(failure, table, shard);
  }
  if (!reply.failed) return reply;
  give_up(table);
  throw Failure{
      {reply.kind, fmt::format("parameter server on rank {}: {}", servers_[shard.server].value, reply.text), servers_[shard.server]}};
}

void Client::give_up(TableState& table) {
  table.asked = table.sent_by_server = false;
  for (Shard& shard : table.shards) {
    shard.reply = {};
    shard.payload = {};
  }
}

Pulled Client::collect(TableState& table) {
  if (table.sent_by_server && !table.asked)  // its values go nowhere
    for (Shard& shard : table.shards) {
      shard.values.resize(shard.count * size_of(table.dtype) / sizeof(float));
      const Piece nowhere = piece(std::span(shard.values));
      shard.expects = nowhere.bytes();
      shard.payload = channel_.recv(servers_[shard.server], kReplyTag + 2 * table.id + 1, as_bytes(nowhere));
    }
  Pulled pulled{.clock = table.clock, .low = INT64_MAX, .version = INT64_MAX};
  for (Shard& shard : table.shards) {
    const Reply reply = await(table, shard);
    pulled.low = std::min(pulled.low, reply.low);
    pulled.version = std::min(pulled.version, reply.version);
  }
  table.asked = table.sent_by_server = false;
  return pulled;
}

Pulled Client::wait(TableId id) {
  TableState& table = state_of(id);
  if (!table.asked) throw_failure(Kind::usage, "table {}: wait() without pull()", table.name);
  const Pulled pulled = collect(table);
  if (table.width > 0)
    for (const Shard& shard : table.shards)
      for (std::size_t i = 0; i < shard.places.size(); ++i)
        std::copy_n(shard.values.data() + i * table.width, table.width, table.into.data() + shard.places[i] * table.width);
  return pulled;
}

// --- values from elsewhere

void Client::put(TableId id, std::uint32_t which, std::size_t first, const Piece& values) {
  TableState& table = state_of(id);
  for (Shard& shard : table.shards) {
    const ElementRange both = ElementRange{first, values.count}.overlap({shard.first, shard.count});
    if (both.count == 0) continue;
    listen(table, shard, {});
    send(table, shard, {.verb = Verb::put, .which = which, .first = both.first - shard.first, .count = both.count},
         values.part(both.first - first, both.count), {}, true);
    await(table, shard);
  }
  await_borrowed(table);
}

void Client::fetch(TableId id, std::uint32_t which, std::size_t first, const Piece& into) {
  TableState& table = state_of(id);
  for (Shard& shard : table.shards) {
    const ElementRange both = ElementRange{first, into.count}.overlap({shard.first, shard.count});
    if (both.count == 0) continue;
    listen(table, shard, into.part(both.first - first, both.count));
    send(table, shard, {.verb = Verb::fetch, .which = which, .first = both.first - shard.first, .count = both.count});
    await(table, shard);
  }
}

void Client::begin_at(TableId id, std::int64_t clock, std::optional<std::int64_t> updates) {
  TableState& table = state_of(id);
  if (table.seq > 0) throw_failure(Kind::usage, "table {}: it cannot begin at clock {} again", table.name, clock);
  table.clock = clock;
  table.updates = static_cast<std::uint64_t>(std::max<std::int64_t>(0, updates.value_or(clock)));
}

void Client::bye() noexcept {
  if (std::exchange(said_bye_, true)) return;
  try {
    const Deadline deadline = Deadline::in(std::min(patience_, Seconds{10}));
    TableState none;
    for (std::size_t s = 0; s < servers_.size(); ++s) send(none, {.server = s}, {.verb = Verb::bye});
    const std::lock_guard lock(mutex_);
    for (auto& s : sent_) try {
        if (s->first) s->first.wait(deadline);
        if (s->payload) s->payload.wait(deadline);
      } catch (const collective::Interrupted&) {
        throw;
      } catch (const Failure&) {  // refused, or its server is gone: others are told all the same
      }
  } catch (...) {  // a server that is gone needs none
  }
}

void Client::explain(const Failure& failure, const TableState& table, const Shard& shard) const {
  if (dynamic_cast<const collective::Interrupted*>(&failure) != nullptr) throw;
  const int rank = servers_[shard.server].value;
  const std::string_view next =
      failure.kind() == Kind::peer_lost ? "; what it kept of the table is lost: start again from the last checkpoint"
      : failure.kind() == Kind::timeout
          ? "; a worker that others wait for does not go on, or the server is overloaded: see what each rank does, or take a looser clock"
          : "";
  throw Failure{{failure.kind(), fmt::format("table {}, parameter server on rank {}: {}{}", table.name, rank, failure.what(), next),
                 servers_[shard.server]}};
}

}  // namespace cohort::ps
