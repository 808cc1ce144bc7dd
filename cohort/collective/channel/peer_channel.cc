#include "cohort/collective/peer_channel.h"

#include <algorithm>
#include <vector>

#include "cohort/collective/channel/channel_core.h"
#include "cohort/collective/communicator.h"

namespace cohort::collective {

Pending& Pending::operator=(Pending&& other) noexcept {
  std::swap(transfer_, other.transfer_);
  Pending(std::move(other));  // gives up what was here
  return *this;
}

Pending::~Pending() {
  if (transfer_) transfer_->core->give_up(*transfer_);
}

void Pending::wait(Deadline deadline) {
  if (!transfer_) return;
  auto error = transfer_->core->wait(*transfer_, deadline);
  transfer_.reset();
  if (error) throw Failure{std::move(*error)};
}

bool Pending::poll() { return !transfer_ || transfer_->core->poll(*transfer_); }

PeerChannel::PeerChannel(std::shared_ptr<ChannelCore> core) : core_(std::move(core)) {}
PeerChannel::~PeerChannel() { core_->close(); }

Rank PeerChannel::rank() const { return core_->rank(); }
int PeerChannel::size() const { return core_->size(); }
Pending PeerChannel::send(Rank to, std::uint32_t tag, Piece data) { return Pending(core_->send(to, tag, data)); }
Pending PeerChannel::recv(Rank from, std::uint32_t tag, Piece data) { return Pending(core_->recv(from, tag, data)); }
std::optional<Error> PeerChannel::lost(Rank peer) const { return core_->lost(peer); }
void PeerChannel::interrupt() noexcept { core_->interrupt(); }

std::size_t PeerChannel::wait_any(std::span<Pending> pendings, Deadline deadline) {
  std::vector<Transfer*> transfers;
  transfers.reserve(pendings.size());
  for (const Pending& pending : pendings) {
    transfers.push_back(pending.transfer_.get());
    if (pending && pending.transfer_->core != core_)
      throw_failure(Kind::usage, "peer channel: wait_any: call {} is of another channel; give each channel a wait of its own",
                    transfers.size() - 1);
  }
  if (std::all_of(transfers.begin(), transfers.end(), [](const Transfer* t) { return t == nullptr; }))
    throw_failure(Kind::usage, "peer channel: wait_any: none of {} calls is under way; leave the loop when all have ended",
                  transfers.size());
  return core_->wait_any(transfers, deadline);
}

std::unique_ptr<PeerChannel> Communicator::channel() {
  throw_failure(Kind::usage, "channel: this communicator ({}) has no peer channels; open one of the communicator underneath", transport());
}

}  // namespace cohort::collective
