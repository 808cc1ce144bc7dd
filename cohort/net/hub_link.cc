// The Link objects of a Hub, and the handles of what is pending on them.
#include "cohort/net/hub.h"

namespace cohort::net {

// The handle of a receive: when it goes, the buffer is the caller's again.
class HubReceive final : public Pending::State {
 public:
  HubReceive(Hub& hub, std::shared_ptr<Receive> receive) : hub_(hub), receive_(std::move(receive)) {}
  ~HubReceive() override {
    if (!receive_->done()) hub_.mailbox_.cancel(receive_);
  }
  void wait(Deadline deadline) override {
    const Receive& r = *receive_;
    if (!r.done() && !hub_.wait_until([&r] { return r.done(); }, deadline))
      throw Failure{{Kind::timeout,
                     fmt::format("{}: rank {} waited past its deadline for {} bytes from rank {} ({}); is that rank still at work?",
                                 hub_.transport(), hub_.rank().value, r.size(), r.from().value, tag_text(r.tag())),
                     r.from()}};
    if (r.error()) throw Failure{*r.error()};
  }
  bool poll() override {
    if (!receive_->done()) hub_.poll_once();
    return receive_->done();
  }

 private:
  Hub& hub_;
  const std::shared_ptr<Receive> receive_;  // shared with the mailbox, which fills it
};

// The handle of a send. Abandoned before its bytes left, it fails the link: half a message cannot be taken back.
class HubSend final : public Pending::State {
 public:
  HubSend(Hub& hub, std::shared_ptr<Sending> sending) : hub_(hub), sending_(std::move(sending)) {}
  ~HubSend() override {
    if (sending_->done()) return;
    sending_->cancel();
    hub_.lost(sending_->to,
              {Kind::aborted, fmt::format("{}: rank {} gave up {} before it had left", hub_.transport(), hub_.rank().value, text()),
               sending_->to});
  }
  void wait(Deadline deadline) override {
    const bool ended = hub_.wait_until([this] { return over(); }, deadline);
    if (sending_->done()) return;
    if (ended) hub_.throw_failure_of(sending_->to);
    throw Failure{
        {Kind::timeout,
         fmt::format("{}: rank {} waited past its deadline with {}; does that rank receive?", hub_.transport(), hub_.rank().value, text()),
         sending_->to}};
  }
  bool poll() override {
    if (!over()) hub_.poll_once();
    return over();
  }

 private:
  bool over() const { return sending_->done() || hub_.mailbox_.failed(sending_->to); }
  std::string text() const {
    return fmt::format("a send of {} bytes to rank {} ({})", sending_->bytes.size(), sending_->to.value, tag_text(sending_->tag));
  }
  Hub& hub_;
  const std::shared_ptr<Sending> sending_;  // shared with the transport's queue
};

class HubLink final : public Link {
 public:
  HubLink(Hub& hub, Rank peer) : hub_(hub), peer_(peer) {}
  Pending send(ConstBytes bytes, Tag tag) override {
    if (hub_.mailbox_.failed(peer_)) hub_.throw_failure_of(peer_);
    if (peer_ != hub_.rank()) return hub_.launch(peer_, bytes, tag);
    hub_.mailbox_.deliver(peer_, tag, bytes);
    hub_.announce();
    return {};
  }
  Pending recv(Bytes bytes, Tag tag) override {
    auto receive = hub_.mailbox_.post(peer_, tag, bytes);
    hub_.after_room(peer_);
    return Pending{std::make_shared<HubReceive>(hub_, std::move(receive))};
  }
  void fail(const Error& error) noexcept override { hub_.lost(peer_, error); }

 private:
  Hub& hub_;
  const Rank peer_;
};

void Hub::make_links() {
  for (int r = 0; r < size(); ++r) links_.push_back(std::make_unique<HubLink>(*this, Rank{r}));
}

Pending Hub::pending(std::shared_ptr<Sending> sending) { return Pending{std::make_shared<HubSend>(*this, std::move(sending))}; }

}  // namespace cohort::net
