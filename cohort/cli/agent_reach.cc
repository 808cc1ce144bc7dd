#include "cohort/cli/agent_reach.h"

#include <fmt/format.h>
#include <poll.h>

#include <list>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/net/dial.h"
#include "cohort/net/interfaces.h"

namespace cohort::cli {
namespace {

std::string unreachable(const AgentCall& call, const std::vector<std::string>& problems) {
  return fmt::format("the launcher answers at none of {}: {}; open the way, or name an interface that this host reaches with --interface",
                     join(call.addresses, ", "), join(problems, "; "));
}

Reached found(const AgentCall& call, const net::Dial& dial, const net::Wire& wire) {
  return {dial.address().text(), call.interface.empty() ? net::local_address(wire.fd()).host : net::interface_address(call.interface)};
}

}  // namespace

Reached reach_launcher(const AgentCall& call, int watch, const std::function<bool()>& gone) {
  const Deadline deadline = Deadline::in(Seconds{call.start_timeout * 0.8});  // so that the launcher hears why before it gives us up
  const net::Hello mine{call.job, Epoch{}, Rank{call.first}, net::Role::worker};
  std::list<net::Dial> dials;
  for (const auto& address : call.addresses) dials.emplace_back(net::Address::parse(address), call.secret, mine, net::Admit{}, deadline);
  std::vector<std::string> problems;
  while (!dials.empty()) {
    if (gone()) return {};
    std::vector<pollfd> fds{{watch, POLLIN, 0}};
    Deadline next = deadline;
    for (auto dial = dials.begin(); dial != dials.end();) {
      try {
        if (const auto wire = dial->advance()) return found(call, *dial, *wire);
        fds.push_back({dial->fd(), dial->events(), 0});
        next = next.sooner(dial->look_again());
        ++dial;
      } catch (const Failure& failure) {
        if (failure.kind() == Kind::usage) throw;
        problems.emplace_back(failure.what());
        dial = dials.erase(dial);
      }
    }
    if (dials.empty()) break;
    poll(fds.data(), fds.size(), next.left_ms());
  }
  throw_failure(Kind::timeout, "{}", unreachable(call, problems));
}

}  // namespace cohort::cli
