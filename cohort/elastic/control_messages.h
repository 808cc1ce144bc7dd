// The messages between an elastic worker and its coordinator, as control frames (net/auth/control_connection.h): workers send events of
// elastic_types.h, the coordinator sends actions. A ConnectionId is not sent: it is the connection. The bytes: docs/reliability.md.
// To add one: a type here, a case in each of the four functions, an input in fuzz/corpus/control_messages.
// Owner: values. Threads: any, pure functions. Failure: Kind::corrupt for bytes that are no message, before memory is allocated for them;
// Kind::bug for an event or action that is never sent.
#pragma once
#include "cohort/elastic/elastic_types.h"
#include "cohort/net/frame/frame.h"

namespace cohort::elastic {

enum : std::uint16_t {
  kArriveFrame = 0x0201,  // from a worker: its identity and progress
  kHeartbeatFrame,
  kReportedFrame,
  kSettledFrame,
  kPeerUnreachableFrame,
  kLeavingFrame,
  kEndedFrame,
  kJobFailedFrame,
  kStateTransferredFrame,
  kSealEpochFrame = 0x0281,  // from the coordinator
  kBeginEpochFrame,
  kReleaseFrame,
  kEvictFrame,
  kRefuseFrame,
  kSayFrame,
  kStopFrame,
  kAliveFrame,
};

inline constexpr std::size_t kMaxTextBytes = 4_KiB;  // a reason or a line for people; longer ones are cut

net::Frame encode_event(const ElasticEvent& event);
ElasticEvent decode_event(const net::Frame& frame, group::ConnectionId connection_id);

net::Frame encode_action(const ElasticAction& action);
ElasticAction decode_action(const net::Frame& frame);

// The connections that an action is sent to; empty: it stays in the coordinator's process.
std::vector<group::ConnectionId> recipients(const ElasticAction& action);

}  // namespace cohort::elastic
