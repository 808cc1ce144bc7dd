#include "cohort/launch/agent_probe.h"

#include <fmt/format.h>
#include <poll.h>

#include <list>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/net/auth/dialer.h"
#include "cohort/net/socket/interfaces.h"

namespace cohort::launch {
namespace {

std::string unreachable(const AgentInit& init, const std::vector<std::string>& problems) {
  return fmt::format(
      "the launcher answers at none of {}: {}; open the firewall, or name an interface that this host reaches with --interface",
      join(init.addresses, ", "), join(problems, "; "));
}

LauncherAddress found(const AgentInit& init, const net::Dialer& dialer, const net::ControlConnection& connection) {
  return {dialer.address().text(),
          init.interface.empty() ? net::local_address(connection.fd()).host : net::interface_address(init.interface)};
}

}  // namespace

LauncherAddress probe_launcher(const AgentInit& init, int watch, const std::function<bool()>& cancelled) {
  const Deadline deadline = Deadline::in(Seconds{init.start_timeout * 0.8});  // so that the launcher gets the reason before its own timeout
  const net::Hello hello{init.job, Epoch{}, Rank{init.first}, net::Role::worker};
  std::list<net::Dialer> dialers;
  for (const auto& address : init.addresses) dialers.emplace_back(net::Address::parse(address), init.secret, hello, net::Admit{}, deadline);
  std::vector<std::string> problems;
  while (!dialers.empty()) {
    if (cancelled()) return {};
    std::vector<pollfd> fds{{watch, POLLIN, 0}};
    Deadline next = deadline;
    for (auto dialer = dialers.begin(); dialer != dialers.end();) {
      try {
        if (const auto connection = dialer->advance()) return found(init, *dialer, *connection);
        fds.push_back({dialer->fd(), dialer->events(), 0});
        next = next.sooner(dialer->look_again());
        ++dialer;
      } catch (const Failure& failure) {
        if (failure.kind() == Kind::usage) throw;
        problems.emplace_back(failure.what());
        dialer = dialers.erase(dialer);
      }
    }
    if (dialers.empty()) break;
    poll(fds.data(), fds.size(), next.left_ms());
  }
  throw_failure(Kind::timeout, "{}", unreachable(init, problems));
}

}  // namespace cohort::launch
