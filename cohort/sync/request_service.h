// Requests that a rank answers while it computes: a peer sends values of a bucket and takes values back, or is refused. What ad_psgd's
// pairs and centres held by ranks (centre.h) meet by.
//
//   asker                                      service (its thread)
//   header: number, bucket ───────────────────►
//   values ───────────────────────────────────► answer(): reads them, writes what goes back into the same place, atomically for the bucket
//         ◄──────────────────────────────────── status: answered or refused
//         ◄──────────────────────────────────── values, when answered
//
// Tags belong to one request, so one that was given up never meets the messages of another. A service answers one request after another and
// never asks, so requests cannot wait for each other in a circle.
// Owner: the strategy. Threads: answer() runs on the service's, one call at a time; a Request is one thread's. Failure: a lost peer fails
// its own requests only; what answer() throws ends that request as refused, and is logged.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cohort/collective/service_thread.h"

namespace cohort::sync {

enum class Outcome : std::uint8_t { pending, answered, refused, lost };

// One request. `sent` and `into` are borrowed until it has ended or is destroyed, which gives it up.
class Request {
 public:
  explicit Request(Rank to) : to_(to), header_(0), outcome_(Outcome::lost) {}  // there is no way to ask any more
  Request(collective::PeerChannel& channel, Rank to, std::uint32_t number, std::uint32_t index, const Piece& sent, const Piece& into);
  Outcome wait(Deadline deadline);  // pending: at the deadline it was still under way; `into` is whole when it is answered
  Rank to() const { return to_; }

 private:
  void finish(Deadline deadline);

  const Rank to_;
  std::int64_t header_, status_ = 0;
  collective::Pending header_sent_, values_sent_, status_here_, values_here_;
  Outcome outcome_ = Outcome::pending;
};

class RequestService {
 public:
  struct Form {  // of the values of one bucket
    std::size_t count = 0;
    Dtype dtype = Dtype::f32;
  };
  // values: what the peer sent; what is there afterwards goes back. false: refused.
  using Answer = std::function<bool(std::uint32_t index, const Piece& values)>;

  // patience: for the values of a peer that has asked.
  RequestService(std::unique_ptr<collective::PeerChannel> channel, std::vector<Rank> askers, std::vector<Form> forms, Answer answer,
                 Seconds patience);
  // For requests of this rank to the services of others, which are on channels of the same number.
  std::unique_ptr<Request> ask(Rank to, std::uint32_t index, const Piece& sent, const Piece& into);

 private:
  void serve(collective::PeerChannel& channel);
  void answer_all(collective::PeerChannel& channel);
  void answer_one(collective::PeerChannel& channel, Rank from, std::int64_t header);
  void refuse(collective::PeerChannel& channel, Rank from, std::int64_t header) const;

  const std::vector<Rank> askers_;
  const std::vector<Form> forms_;
  const Answer answer_;
  const Seconds patience_;
  std::vector<std::byte> values_;  // of the request that is being answered
  std::mutex mutex_;
  collective::PeerChannel* channel_;      // guarded by mutex_: the service's, while it runs
  std::atomic<std::uint32_t> number_{0};  // of requests
  collective::ServiceThread thread_;
};

}  // namespace cohort::sync
