#include "cohort/sync/request_service.h"

#include <algorithm>
#include <utility>

#include "cohort/base/log.h"

namespace cohort::sync {
namespace {

using collective::Interrupted;
using collective::PeerChannel;
using collective::Pending;

constexpr std::uint32_t kNumbers = 1U << 29;  // of requests, then they begin anew
constexpr std::uint32_t kHeaderTag = 0, kNeverTag = 4;
constexpr std::int64_t kAnswered = 1, kRefused = 2;

// Of one request: two tags of the asker's messages differ from those of the service's, as a rank may be both.
struct Tags {
  explicit Tags(std::uint32_t number) : values(8 * number + 1), status(8 * number + 2), reply(8 * number + 3) {}
  std::uint32_t values, status, reply;
};

std::int64_t pack(std::uint32_t number, std::uint32_t index) { return static_cast<std::int64_t>((std::uint64_t{number} << 32) | index); }
std::uint32_t number_in(std::int64_t header) { return static_cast<std::uint32_t>(static_cast<std::uint64_t>(header) >> 32) % kNumbers; }
std::uint32_t index_in(std::int64_t header) { return static_cast<std::uint32_t>(header); }

Piece word(const std::int64_t& value) { return collective::piece(std::span(&value, 1)); }

}  // namespace

Request::Request(PeerChannel& channel, Rank to, std::uint32_t number, std::uint32_t index, const Piece& sent, const Piece& into)
    : to_(to), header_(pack(number, index)) {
  const Tags tags(number);
  status_here_ = channel.recv(to, tags.status, word(status_));
  values_here_ = channel.recv(to, tags.reply, into);
  header_sent_ = channel.send(to, kHeaderTag, word(header_));
  values_sent_ = channel.send(to, tags.values, sent);
}

void Request::finish(Deadline deadline) {
  if (status_here_) status_here_.wait(deadline);
  if (status_ == kAnswered) {
    if (values_here_) values_here_.wait(deadline);
    if (header_sent_) header_sent_.wait(deadline);
    if (values_sent_) values_sent_.wait(deadline);
  }
  outcome_ = status_ == kAnswered ? Outcome::answered : Outcome::refused;
}

Outcome Request::wait(Deadline deadline) {
  if (outcome_ != Outcome::pending) return outcome_;
  try {
    finish(deadline);
  } catch (const Interrupted&) {
    throw;
  } catch (const Failure& failure) {
    if (failure.error().kind != Kind::timeout) outcome_ = Outcome::lost;
  }
  if (outcome_ == Outcome::pending) return outcome_;
  for (Pending* call : {&header_sent_, &values_sent_, &status_here_, &values_here_}) *call = Pending();  // what is left of them is given up
  return outcome_;
}

namespace {

std::size_t largest(const std::vector<RequestService::Form>& forms) {
  std::size_t most = 0;
  for (const auto& form : forms) most = std::max(most, form.count * size_of(form.dtype));
  return most;
}

}  // namespace

RequestService::RequestService(std::unique_ptr<PeerChannel> channel, std::vector<Rank> askers, std::vector<Form> forms, Answer answer,
                               Seconds patience)
    : askers_(std::move(askers)),
      forms_(std::move(forms)),
      answer_(std::move(answer)),
      patience_(patience),
      values_(largest(forms_)),
      channel_(channel.get()),
      thread_("model service", std::move(channel), [this](PeerChannel& open) { serve(open); }) {}

std::unique_ptr<Request> RequestService::ask(Rank to, std::uint32_t index, const Piece& sent, const Piece& into) {
  const std::lock_guard lock(mutex_);
  if (channel_ == nullptr) return std::make_unique<Request>(to);
  return std::make_unique<Request>(*channel_, to, number_++ % kNumbers, index, sent, into);
}

// When it returns or throws the thread closes the channel.
void RequestService::serve(PeerChannel& channel) {
  struct NoMoreRequests {
    RequestService& service;
    ~NoMoreRequests() {
      const std::lock_guard lock(service.mutex_);
      service.channel_ = nullptr;
    }
  } const at_the_end{*this};
  answer_all(channel);
}

// Until the thread is stopped, or the communicator is aborted. The last of the receives never comes: who has lost all its peers waits
// there.
void RequestService::answer_all(PeerChannel& channel) {
  std::vector<std::int64_t> headers(askers_.size() + 1);
  std::vector<Pending> asked(headers.size());
  for (std::size_t k = 0; k < askers_.size(); ++k) asked[k] = channel.recv(askers_[k], kHeaderTag, word(headers[k]));
  asked.back() = channel.recv(channel.rank(), kNeverTag, word(headers.back()));
  while (true) {
    const std::size_t k = channel.wait_any(asked, Deadline{});
    try {
      asked[k].wait(Deadline{});
    } catch (const Interrupted&) {
      throw;
    } catch (const Failure&) {  // this peer is lost; the others go on
      asked[k] = Pending();
      if (k == askers_.size()) return;
      continue;
    }
    const std::int64_t header = headers[k];
    asked[k] = channel.recv(askers_[k], kHeaderTag, word(headers[k]));
    answer_one(channel, askers_[k], header);
  }
}

void RequestService::answer_one(PeerChannel& channel, Rank from, std::int64_t header) {
  bool answered = false;
  try {
    if (index_in(header) >= forms_.size()) return refuse(channel, from, header);
    const Form& form = forms_[index_in(header)];
    const Tags tags(number_in(header));
    const Piece values{values_.data(), form.count, form.dtype};
    const Deadline deadline = Deadline::in(patience_);
    channel.recv(from, tags.values, values).wait(deadline);
    answered = answer_(index_in(header), values);
    if (!answered) return refuse(channel, from, header);
    channel.send(from, tags.status, word(kAnswered)).wait(deadline);
    channel.send(from, tags.reply, values).wait(Deadline::in(patience_));
  } catch (const Interrupted&) {
    throw;
  } catch (const Failure& failure) {
    const bool gone = failure.error().kind == Kind::peer_lost || failure.error().kind == Kind::aborted;
    if (!gone) log_warning("a request of rank {} was not answered: {}", from.value, failure.what());
    if (!answered) refuse(channel, from, header);
  }
}

// Small: it has left when this returns, or there is nobody to tell.
void RequestService::refuse(PeerChannel& channel, Rank from, std::int64_t header) const {
  try {
    channel.send(from, Tags(number_in(header)).status, word(kRefused)).wait(Deadline::in(patience_));
  } catch (const Interrupted&) {
    throw;
  } catch (const Failure&) {  // it is lost
  }
}

}  // namespace cohort::sync
