// What the calls of this rank and the records of its peers do to each other. mutex_ is held throughout.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cohort/collective/channel/channel_core.h"

namespace cohort::collective {
namespace {

constexpr std::uint32_t kRecords = 0;                                  // number of the tag of records
constexpr std::uint64_t kReportBytes = PeerChannel::kEagerWindow / 4;  // so the window seldom closes while its receiver keeps up

// Of the bytes of one message. As a collective's, so that they use all sockets of a link.
Tag bytes_tag(std::uint32_t channel, std::uint32_t id) { return {channel, kCollectiveTags | id}; }

std::uint64_t cost(const Record& small) { return sizeof(Record) + small.length; }

const Error& withdrawn_error() {
  static const Error error{Kind::aborted, "the sender gave up this message before it was received", kNoRank};
  return error;
}

}  // namespace

void ChannelCore::launch(Peer& peer, const TransferPtr& send) {
  const ConstBytes bytes = send->bytes();
  send->id = peer.next_id++ & (kCollectiveTags - 1);
  Record record{.kind = Record::Kind::announce, .tag = send->tag, .id = send->id, .length = bytes.size()};
  const bool eager = bytes.size() <= PeerChannel::kEagerBytes && peer.in_window + cost(record) <= PeerChannel::kEagerWindow;
  if (!eager) {
    peer.offered.emplace(send->id, send);
    return tell(peer, record);
  }
  peer.in_window += cost(record);
  const bool is_inline = bytes.size() <= PeerChannel::kInlineBytes;
  record.kind = is_inline ? Record::Kind::announce_inline : Record::Kind::announce_eager;
  send->record = encode(record, is_inline ? bytes : ConstBytes{});
  or_lose(peer, [&] { send->announcing = link(peer).send(send->record, {channel_, kRecords}); });
  is_inline && !peer.lost ? move(*send, {}) : send_bytes(peer, *send);
}

void ChannelCore::send_bytes(Peer& peer, Transfer& send) {
  or_lose(peer, [&] { move(send, link(peer).send(send.bytes(), bytes_tag(channel_, send.id))); });
  if (send.stage == Transfer::Stage::waiting) end(send, peer.lost);
}

void ChannelCore::post(Peer& peer, const TransferPtr& receive) {
  const auto queue = peer.announced.find(receive->tag);
  if (queue == peer.announced.end()) {
    if (peer.lost) return end(*receive, peer.lost);
    peer.posted[receive->tag].push_back(receive);
    return;
  }
  const Announced first = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) peer.announced.erase(queue);
  meet(peer, receive, first);
}

void ChannelCore::handle(Peer& peer, const net::Message& message) {
  const auto record = decode(message.bytes);
  if (!record) throw_failure(Kind::corrupt, "rank {} sent {} bytes that are no record of a peer channel", peer.rank, message.bytes.size());
  switch (record->kind) {
    case Record::Kind::announce_inline:
    case Record::Kind::announce_eager:
    case Record::Kind::announce: {
      Announced announced{*record, {message.bytes.begin() + sizeof(Record), message.bytes.end()}};
      const auto queue = peer.posted.find(record->tag);
      if (queue == peer.posted.end()) return void(peer.announced[record->tag].push_back(std::move(announced)));
      const TransferPtr receive = std::move(queue->second.front());
      queue->second.pop_front();
      if (queue->second.empty()) peer.posted.erase(queue);
      return meet(peer, receive, announced);
    }
    case Record::Kind::grant: return start_bytes(peer, *record);
    case Record::Kind::refuse: {
      const auto found = peer.offered.extract(record->id);
      if (found.empty()) return;
      return end(*found.mapped(),
                 Error{Kind::corrupt, fmt::format("its receive has {} bytes; both sides must agree", record->length), kNoRank});
    }
    case Record::Kind::withdraw: return withdraw(peer, *record);
    case Record::Kind::received: peer.in_window -= std::min(peer.in_window, record->length); return;
    case Record::Kind::close: return lose(peer, {Kind::peer_lost, fmt::format("rank {} closed its channel", peer.rank), Rank{peer.rank}});
  }
}

// A receive and the message it is for. From here on it ends with this message, whatever becomes of it.
void ChannelCore::meet(Peer& peer, const TransferPtr& receive, const Announced& announced) {
  const Record& record = announced.record;
  receive->id = record.id;
  if (record.kind != Record::Kind::announce && (peer.unreported += cost(record)) >= kReportBytes && !peer.lost)
    tell(peer, {.kind = Record::Kind::received, .length = std::exchange(peer.unreported, 0)});
  if (announced.withdrawn) return end(*receive, withdrawn_error());
  const Bytes into = receive->bytes();
  if (record.length != into.size()) return refuse(peer, *receive, record);
  if (record.kind == Record::Kind::announce_inline) {
    if (!into.empty()) std::memcpy(into.data(), announced.inline_bytes.data(), into.size());
    return end(*receive);
  }
  peer.granted.emplace(record.id, receive);
  move(*receive, link(peer).recv(into, bytes_tag(channel_, record.id)));
  if (record.kind == Record::Kind::announce && receive->stage == Transfer::Stage::moving)
    tell(peer, {.kind = Record::Kind::grant, .tag = record.tag, .id = record.id});
}

void ChannelCore::refuse(Peer& peer, Transfer& receive, const Record& record) {
  const std::size_t expected = receive.data.bytes();
  end(receive, Error{Kind::corrupt, fmt::format("the message has {} bytes; both sides must agree", record.length), kNoRank});
  if (record.kind == Record::Kind::announce) tell(peer, {.kind = Record::Kind::refuse, .id = record.id, .length = expected});
  if (record.kind == Record::Kind::announce_eager) link(peer).recv({}, bytes_tag(channel_, record.id)).detach();  // its bytes come anyway
}

void ChannelCore::start_bytes(Peer& peer, const Record& grant) {
  const auto found = peer.offered.extract(grant.id);
  if (!found.empty()) return send_bytes(peer, *found.mapped());
  link(peer).send({}, bytes_tag(channel_, grant.id)).detach();  // it was withdrawn: no bytes, for the receive that the peer has posted
}

void ChannelCore::withdraw(Peer& peer, const Record& record) {
  if (const auto queue = peer.announced.find(record.tag); queue != peer.announced.end())
    for (Announced& announced : queue->second)
      if (announced.record.id == record.id) announced.withdrawn = true;
  const auto found = peer.granted.extract(record.id);
  if (found.empty()) return;
  Transfer& receive = *found.mapped();
  receive.net.detach();
  end(receive, withdrawn_error());
}

void ChannelCore::tell(Peer& peer, const Record& record) {
  while (!peer.outbox.empty() && peer.outbox.front().sending.done()) peer.outbox.pop_front();
  Outgoing& out = peer.outbox.emplace_back(Outgoing{encode(record), {}});
  or_lose(peer, [&] { out.sending = link(peer).send(out.bytes, {channel_, kRecords}); });
  if (out.sending.done()) peer.outbox.pop_back();
}

void ChannelCore::move(Transfer& t, net::Pending pending) {
  t.net = std::move(pending);
  t.stage = Transfer::Stage::moving;
  if (t.done()) settle(t);
}

// Its bytes have moved, or never will.
void ChannelCore::settle(Transfer& t) {
  Peer& peer = peers_[static_cast<std::size_t>(t.peer)];
  if (!t.sends) peer.granted.erase(t.id);
  try {
    t.announcing.wait(Deadline::in(Seconds{0}));
    t.net.wait(Deadline::in(Seconds{0}));
    end(t);
  } catch (const Failure& failure) {
    const bool empty = failure.kind() == Kind::corrupt && !links_->failure(peer.member);  // see start_bytes()
    end(t, empty ? withdrawn_error() : failure.error());
  }
}

void ChannelCore::end(Transfer& t, std::optional<Error> cause) const {
  t.stage = Transfer::Stage::ended;
  if (cause) {
    const Peer& peer = peers_[static_cast<std::size_t>(t.peer)];
    const std::string also = peer.member.value == peer.rank ? "" : fmt::format(", which is rank {} of the links,", peer.member.value);
    const char* const next = cause->kind == Kind::peer_lost ? "; calls to other ranks go on" : "";
    t.error = Error{cause->kind, fmt::format("peer channel: {}{} on rank {}: {}{}", t.text(), also, me_, cause->what, next), Rank{t.peer}};
  } else if (!t.sends) {
    counters_->count(Collective::recv, t.data.count, t.data.dtype);
  }
}

void ChannelCore::lose(Peer& peer, const Error& cause) {
  if (peer.lost) return;
  peer.lost = cause;
  for (const auto& [id, t] : std::exchange(peer.offered, {})) end(*t, cause);
  for (const auto& [tag, queue] : std::exchange(peer.posted, {}))
    for (const TransferPtr& t : queue) end(*t, cause);
}

}  // namespace cohort::collective
