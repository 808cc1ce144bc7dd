#include "cohort/launch/remote_shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/group/hosts.h"
#include "cohort/launch/program.h"
#include "cohort/launch/rank_environment.h"
#include "cohort/net/socket/address.h"
#include "cohort/net/socket/interfaces.h"

namespace cohort::launch {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  for (const auto part : split(command, ' '))
    if (!trim(part).empty()) words.emplace_back(trim(part));
  return words;
}

std::vector<std::string> remote_shell(const LaunchOptions& options, const group::Environment& environment) {
  const auto given = environment.find("COHORT_SSH");
  std::string command = options.ssh;
  if (command.empty() && given != environment.end()) command = given->second;
  auto words = words_of(command.empty() ? "ssh" : command);
  if (words.empty()) throw_failure(Kind::usage, "--ssh: the command of a remote shell is empty");
  words[0] = find_program({.command = {words[0]}, .no_python = true}, environment).path;
  return words;
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> agent_command_line(const LaunchOptions& options, const group::Environment& environment, const std::string& host) {
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  if (group::names_this_host(host)) return {self, "agent", "--stdio"};
  auto words = remote_shell(options, environment);
  // No password prompt (nobody could answer it), no forwarding, and an end when the host no longer answers.
  if (fs::path(words[0]).filename() == "ssh")
    for (const auto& option : {std::string("-T"), std::string("-x"), std::string("-a"), std::string("-oBatchMode=yes"),
                               fmt::format("-oConnectTimeout={:.0f}", std::max(1.0, options.start_timeout.count())),
                               std::string("-oServerAliveInterval=5"), std::string("-oServerAliveCountMax=3")})
      words.push_back(option);
  if (options.ssh_port != 0) words.insert(words.end(), {"-p", fmt::format("{}", options.ssh_port)});
  if (!options.ssh_identity.empty()) words.insert(words.end(), {"-i", options.ssh_identity});
  words.push_back(host);
  words.push_back(fmt::format("exec {} agent --stdio", shell_quoted(options.agent.empty() ? self : options.agent)));
  return words;
}

std::vector<std::pair<std::string, std::string>> forwarded_environment(const group::Environment& environment) {
  std::vector<std::pair<std::string, std::string>> kept;
  for (const auto& [name, value] : environment)
    if (!is_host_local(name)) kept.emplace_back(name, value);
  return kept;
}

std::string listen_address(const std::string& interface) {
  if (!interface.empty()) return net::interface_address(interface);
  const auto all = net::list_interfaces();
  const bool four =
      std::any_of(all.begin(), all.end(), [](const net::Interface& i) { return !i.loopback && i.address.find(':') == i.address.npos; });
  return four ? "0.0.0.0" : "::";
}

std::vector<std::string> reachable_addresses(const std::string& interface, int port) {
  std::vector<std::string> addresses;
  const auto add = [&](const std::string& host) { addresses.push_back(net::Address{host, static_cast<std::uint16_t>(port)}.text()); };
  if (!interface.empty()) return add(net::interface_address(interface)), addresses;
  const bool six = listen_address("") == "::";
  for (const net::Interface& i : net::list_interfaces())
    if (!i.loopback && (six || i.address.find(':') == i.address.npos)) add(i.address);
  if (addresses.empty())
    throw_failure(Kind::usage,
                  "this host has no address but loopback: nobody else can reach it; set up a network, or give -H localhost:N only");
  return addresses;
}

}  // namespace cohort::launch
