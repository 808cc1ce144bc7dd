#include "cohort/job/run_on_all.h"

#include <fmt/format.h>

#include <exception>
#include <numeric>

namespace cohort::job {

void run_on_all(collective::Communicator& comm, std::string_view what, const std::function<void()>& part) {
  std::exception_ptr mine;
  std::int32_t kind = -1;  // it did not fail
  try {
    part();
  } catch (const Failure& failure) {
    mine = std::current_exception();
    kind = static_cast<std::int32_t>(failure.kind());
  } catch (const std::exception&) {
    mine = std::current_exception();
    kind = static_cast<std::int32_t>(Kind::system);
  }
  std::vector<std::int32_t> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(collective::piece(std::span(&kind, 1)), collective::piece(std::span(all)), {.name = what});
  for (int r = 0; r < comm.size(); ++r) {
    if (all[static_cast<std::size_t>(r)] < 0) continue;
    if (r == comm.rank().value) std::rethrow_exception(mine);
    throw Failure{{static_cast<Kind>(all[static_cast<std::size_t>(r)]),
                   fmt::format("{}: it failed on rank {}, which reports the cause", what, r), Rank{r}}};
  }
}

std::vector<std::string> gather_texts(collective::Communicator& comm, std::string mine, std::string_view what) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::int64_t length = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> lengths(ranks);
  comm.all_gather(collective::piece(std::span(&length, 1)), collective::piece(std::span(lengths)), {.name = what});
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::string all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), ' ');
  const auto bytes = [](std::string& s) { return collective::Piece{s.data(), s.size(), collective::Dtype::u8, collective::Device::cpu}; };
  comm.all_gather(bytes(mine), bytes(all), {.name = what}, counts);
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (const auto n : counts) {
    texts.push_back(all.substr(at, n));
    at += n;
  }
  return texts;
}

bool reported_by_another_rank(const Error& error, Rank me) {
  return error.kind == Kind::usage && error.rank != kNoRank && error.rank != me;
}

}  // namespace cohort::job
