// The Link objects of a TransportBase, and the handles of their pending operations.
#include "cohort/net/transport/transport_base.h"

namespace cohort::net {
namespace {

constexpr Seconds kCardLimit{1};  // for the network card to release memory of a send that its caller lets go of

}  // namespace

// The handle of a receive: its destructor gives the buffer back to the caller.
class TransportReceive final : public Pending::State {
 public:
  TransportReceive(TransportBase& transport, std::shared_ptr<Receive> receive) : transport_(transport), receive_(std::move(receive)) {}
  ~TransportReceive() override {
    if (!receive_->done()) transport_.mailbox_.cancel(receive_);
  }
  void wait(Deadline deadline) override {
    const Receive& r = *receive_;
    if (!r.done() && !transport_.wait_until([&r] { return r.done(); }, deadline))
      throw Failure{{Kind::timeout,
                     fmt::format("{}: rank {} waited past its deadline for {} bytes from rank {} ({}); does that rank send?",
                                 transport_.transport(), transport_.rank().value, r.size(), r.from().value, tag_text(r.tag())),
                     r.from()}};
    if (r.error()) throw Failure{*r.error()};
  }
  bool poll() override {
    if (!receive_->done()) transport_.poll_once();
    return receive_->done();
  }
  bool done() const override { return receive_->done(); }
  void detach() override { transport_.mailbox_.drop(receive_); }

 private:
  TransportBase& transport_;
  const std::shared_ptr<Receive> receive_;  // shared with the mailbox, which fills it
};

// The handle of a send. Abandoned before it completed, it fails the link: half a message cannot be taken back.
class TransportSend final : public Pending::State {
 public:
  TransportSend(TransportBase& transport, std::shared_ptr<Sending> sending) : transport_(transport), sending_(std::move(sending)) {}
  ~TransportSend() override {
    if (sending_->done() || detached_) return;
    sending_->cancel();
    transport_.lost(sending_->to,
                    {Kind::aborted,
                     fmt::format("{}: rank {} gave up {} before it was complete", transport_.transport(), transport_.rank().value, text()),
                     sending_->to});
  }
  void wait(Deadline deadline) override {
    const bool ended = transport_.wait_until([this] { return over(); }, deadline);
    if (sending_->done()) return;
    if (ended) transport_.throw_failure_of(sending_->to);
    throw Failure{{Kind::timeout,
                   fmt::format("{}: rank {} waited past its deadline with {}; does that rank receive?", transport_.transport(),
                               transport_.rank().value, text()),
                   sending_->to}};
  }
  bool poll() override {
    if (!over()) transport_.poll_once();
    return over();
  }
  bool done() const override { return over(); }
  void detach() override {
    transport_.wait_until([this] { return over() || (detached_ = sending_->take_copy()); }, Deadline::in(kCardLimit));
  }

 private:
  bool over() const { return sending_->done() || transport_.mailbox_.failed(sending_->to); }
  std::string text() const {
    return fmt::format("a send of {} bytes to rank {} ({})", sending_->bytes.size(), sending_->to.value, tag_text(sending_->tag));
  }
  TransportBase& transport_;
  const std::shared_ptr<Sending> sending_;  // shared with the transport's queue
  bool detached_ = false;
};

class TransportLink final : public Link {
 public:
  TransportLink(TransportBase& transport, Rank peer) : transport_(transport), peer_(peer) {}
  Pending send(ConstBytes bytes, Tag tag) override {
    if (transport_.mailbox_.failed(peer_)) transport_.throw_failure_of(peer_);
    if (peer_ != transport_.rank()) return transport_.launch(peer_, bytes, tag);
    transport_.mailbox_.deliver(peer_, tag, bytes);
    transport_.announce();
    return {};
  }
  Pending recv(Bytes bytes, Tag tag) override {
    auto receive = transport_.mailbox_.post(peer_, tag, bytes);
    transport_.after_room(peer_);
    return Pending{std::make_shared<TransportReceive>(transport_, std::move(receive))};
  }
  void fail(const Error& error) noexcept override { transport_.lost(peer_, error); }

 private:
  TransportBase& transport_;
  const Rank peer_;
};

void TransportBase::make_links() {
  for (int r = 0; r < size(); ++r) links_.push_back(std::make_unique<TransportLink>(*this, Rank{r}));
}

Pending TransportBase::pending(std::shared_ptr<Sending> sending) {
  return Pending{std::make_shared<TransportSend>(*this, std::move(sending))};
}

}  // namespace cohort::net
