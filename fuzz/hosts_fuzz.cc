// Host lists, host files, what a discovery script prints, and Slurm's lists. The first byte says which. Whatever the text: refused with
// Kind::usage, or hosts that are within their limits and that no shell or ssh could take for anything but a name.
#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/group/hosts.h"

using namespace cohort;
using namespace cohort::group;

namespace {

void check_name(const std::string& name) {
  if (name.empty() || name.front() == '-' || name.find_first_of(" \t\r\n;$`'\"\\|&<>()*?[]{}~#!=,/") != name.npos) __builtin_trap();
}

void check(const Hosts& hosts) {
  if (hosts.empty() || hosts.size() > static_cast<std::size_t>(kMostHosts)) __builtin_trap();
  for (const HostSlots& host : hosts) {
    check_name(host.name);
    if (host.slots < 1 || host.slots > kMostSlots) __builtin_trap();
  }
  int next = 0;
  for (const HostShare& share : share_ranks(hosts, 1)) {
    if (share.first != next || share.ranks < 1) __builtin_trap();
    next += share.ranks;
  }
}

void read(unsigned char which, std::string_view text) {
  if (which == 0) return check(parse_host_list(text));
  if (which == 1) return check(parse_host_file(text, "f"));
  if (which == 2) return check(parse_discovery(text, "s", 2));
  if (which == 3) {
    const auto nodes = parse_nodelist(text);
    if (nodes.empty() || nodes.size() > static_cast<std::size_t>(kMostHosts)) __builtin_trap();
    std::for_each(nodes.begin(), nodes.end(), check_name);
    return;
  }
  for (const int tasks : parse_tasks_per_node(text))
    if (tasks < 1 || tasks > kMostSlots) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* input, std::size_t size) {
  if (size == 0) return 0;
  try {
    read(static_cast<unsigned char>(input[0] % 5), {reinterpret_cast<const char*>(input + 1), size - 1});
  } catch (const Failure& f) {
    if (f.kind() != Kind::usage) __builtin_trap();
  }
  return 0;
}
