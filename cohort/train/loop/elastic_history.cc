// Writes what a worker of an elastic job did, for the checker of histories (elastic/history.h).
#include <fmt/format.h>
#include <torch/torch.h>

#include "cohort/net/frame/frame.h"
#include "cohort/train/loop/elastic_session.h"

namespace cohort::train {

using elastic::HistoryLine;

std::string ElasticTrainer::hash() const {
  if (session_->loop->engine().shards_parameters() || drifts_) return "";  // no rank has all, or each has its own
  std::uint32_t sum = 0;
  for (const auto& [name, p] : model_and_data_.model.named_parameters())
    sum = net::crc32c({static_cast<const std::byte*>(p.const_data_ptr()), p.nbytes()}, sum);
  return fmt::format("{:08x}", sum);
}

void ElasticTrainer::log_history(HistoryLine::Event event, std::int64_t step) {
  if (!history_.is_open()) return;
  const HistoryLine line{.event = event,
                         .epoch = session_->roster.epoch,
                         .step = step,
                         .rank = session_->comm->rank(),
                         .worker = fmt::format("{:x}", job_->elastic_worker().id().value),
                         .size = session_->comm->size(),
                         .hash = event == HistoryLine::Event::start ? "" : hash()};
  history_ << encode_line(line) + "\n" << std::flush;
}

// Of the step that is about to be voted for; its parameters come later.
void ElasticTrainer::prepare_history_line() {
  if (!history_.is_open()) return;
  const TrainLoop& loop = *session_->loop;
  data::Share share = loop.share();
  share.first = loop.samples_taken();
  const auto plan = data::plan(share, loop.position().epoch);
  next_line_ = {.event = HistoryLine::Event::commit,
                .epoch = session_->roster.epoch,
                .step = loop.step() + 1,
                .rank = session_->comm->rank(),
                .worker = fmt::format("{:x}", job_->elastic_worker().id().value),
                .size = session_->comm->size(),
                .hash = "",
                .data_epoch = loop.position().epoch,
                .first = share.first,
                .total = plan.total(0),
                .of = share.samples,
                .samples = {plan.mine(0).begin(), plan.mine(0).end()}};
}

void ElasticTrainer::commit_history_line(bool whole) {
  if (!history_.is_open()) return;
  next_line_.hash = whole ? hash() : "";
  history_ << encode_line(next_line_) + "\n" << std::flush;
}

}  // namespace cohort::train
