#include "cohort/train/loop/together.h"

#include <fmt/format.h>

#include <exception>
#include <vector>

namespace cohort {

void together(collective::Communicator& comm, std::string_view what, const std::function<void()>& part) {
  std::exception_ptr mine;
  std::int32_t kind = -1;  // well
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
    throw Failure{
        {static_cast<Kind>(all[static_cast<std::size_t>(r)]), fmt::format("{}: rank {} stops here and says why", what, r), Rank{r}}};
  }
}

bool told_elsewhere(const Error& error, Rank me) { return error.kind == Kind::usage && error.rank != kNoRank && error.rank != me; }

}  // namespace cohort
