// What an elastic worker and its coordinator say to each other, as control frames (net/wire.h): events of elastic_types.h go up, actions
// come down. A Guest does not travel: it is the connection. The bytes are listed in docs/reliability.md.
// To add one: a type here, a case in each of the four functions, an input in fuzz/corpus/orders.
// Owner: values. Threads: any, pure functions. Failure: Kind::corrupt for bytes that mean nothing, before memory is taken for them;
// Kind::bug for an event or action that never leaves its process.
#pragma once
#include "cohort/group/elastic_types.h"
#include "cohort/net/frame.h"

namespace cohort::group {

enum : std::uint16_t {
  kArriveFrame = 0x0201,  // worker: who it is, and where it stands
  kHeardFrame,            // its heart
  kReportedFrame,
  kSettledFrame,
  kComplainedFrame,
  kLeavingFrame,
  kEndedFrame,
  kCondemnedFrame,
  kEntrustedFrame,
  kSealFrame = 0x0281,  // coordinator
  kBeginFrame,
  kReleaseFrame,
  kEvictFrame,
  kRefuseFrame,
  kSayFrame,
  kStopFrame,
};

inline constexpr std::size_t kMostWords = 4_KiB;  // a reason or a line for people; longer ones are cut

net::Frame encode_event(const ElasticEvent& event);
ElasticEvent decode_event(const net::Frame& frame, Guest guest);

net::Frame encode_order(const ElasticAction& action);
ElasticAction decode_order(const net::Frame& frame);

// Whom an action is for; empty: nobody outside the coordinator's own process.
std::vector<Guest> addressees(const ElasticAction& action);

}  // namespace cohort::group
