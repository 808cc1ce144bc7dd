// The parser is written by hand. CLI11, which reads the options of all other commands, refuses the long options with one dash of horovodrun
// and mpirun (-np, -hostfile), knows no `_` for `-`, no reason for a refusal and no "did you mean", and takes a misspelled option for the
// program: where this command line ends and the program's begins is the one thing a launcher must not guess.
#include "cohort/launch/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/launch/option_table.h"

namespace cohort::launch {
namespace {

// torchrun reads every option from PET_<NAME> as well, and cluster operators set those.
void read_pet(LaunchOptions& options, const group::Environment& env) {
  for (const std::string_view name : {"nproc-per-node", "nnodes", "node-rank", "master-addr", "master-port", "rdzv-backend", "rdzv-id",
                                      "rdzv-endpoint", "max-restarts"}) {
    std::string variable = fmt::format("PET_{}", name);
    for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const auto at = env.find(variable);
    if (at != env.end() && !at->second.empty()) apply_option(options, *find_option(fmt::format("--{}", name)), variable, at->second);
  }
}

struct Word {
  std::string name;
  std::optional<std::string> value;
};

// "--start_timeout=5" is {"--start-timeout", "5"}; "-n4" is {"-n", "4"}.
Word split_option(const std::string& word) {
  if (word.starts_with("--")) {
    const auto equals = word.find('=');
    std::string name = word.substr(0, equals);
    std::replace(name.begin(), name.end(), '_', '-');
    return {name, equals == word.npos ? std::nullopt : std::optional(word.substr(equals + 1))};
  }
  const bool glued = word.size() > 2 && find_option(word) == nullptr && std::isdigit(static_cast<unsigned char>(word[2])) != 0;
  return glued ? Word{word.substr(0, 2), word.substr(2)} : Word{word, std::nullopt};
}

void check_elastic_options(const LaunchOptions& o) {
  if (o.nodes > 1)
    throw_failure(Kind::usage,
                  "an elastic job (--min-n) has one launcher, which starts agents on its hosts by itself: -H instead of --nnodes");
  if (o.discovery_interval < Seconds{0.05})
    throw_failure(Kind::usage, "--discovery-interval {}: below 50 ms the script does nothing but start",
                  format_seconds(o.discovery_interval));
  if (o.lost_after < Seconds{0.1})
    throw_failure(Kind::usage, "--lost-after {}: below 0.1 s every busy worker is taken for lost", format_seconds(o.lost_after));
  if (std::min(o.settle_limit, o.wait_limit) < Seconds{1})
    throw_failure(Kind::usage, "--settle-limit {}, --wait-limit {}: below 1 s no worker has the time to join",
                  format_seconds(o.settle_limit), format_seconds(o.wait_limit));
  const auto backend = o.variables.find("COHORT_BACKEND");
  if (backend != o.variables.end() && backend->second != "native")
    throw_failure(Kind::usage, "--backend {} with --min-n: its ranks cannot join and leave; leave out one of the two", backend->second);
}

}  // namespace

LaunchOptions default_options(const group::Environment& environment) {
  LaunchOptions options;
  read_pet(options, environment);
  if (const auto tls = environment.find("COHORT_TLS"); tls != environment.end()) options.tls = parse_bool(tls->second);
  if (const auto wait = environment.find("COHORT_START_TIMEOUT"); wait != environment.end())
    options.start_timeout = parse_seconds(wait->second);
  return options;
}

LaunchOptions parse_launch_options(const std::vector<std::string>& args, const group::Environment& environment) {
  LaunchOptions options = default_options(environment);
  std::size_t at = 0;
  for (; at < args.size(); ++at) {
    if (args[at] == "--") {
      ++at;
      break;
    }
    if (!args[at].starts_with('-') || args[at] == "-") break;
    Word word = split_option(args[at]);
    const OptionRow* row = find_option(word.name);
    if (row == nullptr) refuse_option(word.name);
    if (row->value.empty() && word.value)
      throw_failure(Kind::usage, "{} takes no value, '{}' was given", word.name, printable(*word.value));
    if (!row->value.empty() && !word.value) {
      if (++at == args.size()) throw_failure(Kind::usage, "{} needs a value: {}", word.name, row->value);
      word.value = args[at];
    }
    apply_option(options, *row, word.name, word.value.value_or(""));
  }
  options.command.assign(args.begin() + static_cast<std::ptrdiff_t>(std::min(at, args.size())), args.end());
  if (!options.help) check_options(options);
  return options;
}

void check_options(const LaunchOptions& o) {
  if (o.command.empty())
    throw_failure(Kind::usage, "nothing to run: cohort run -n 4 -- ./program its arguments; `cohort run --help` tells more");
  if (o.output.empty() && (!o.redirects.empty() || !o.tees.empty()))
    throw_failure(Kind::usage, "--redirects and --tee need a folder: --output DIR");
  if (o.max_workers > 0 && !o.elastic())
    throw_failure(Kind::usage, "--max-n without --min-n: an elastic job says how few workers it can go on with");
  if (o.supervised && !o.elastic())
    throw_failure(Kind::usage,
                  "--supervised without --min-n: the coordinator of a job that is not elastic has nothing to decide after the rendezvous, "
                  "and the job ends with its launcher");
  if (o.elastic()) check_elastic_options(o);
  const int named = static_cast<int>(!o.hosts.empty()) + static_cast<int>(!o.host_file.empty()) +
                    static_cast<int>(!o.discovery_script.empty()) + static_cast<int>(o.nodes > 1);
  if (named > 1) throw_failure(Kind::usage, "hosts are named once: -H, --hostfile, --host-discovery-script or --nnodes");
}

Sink LaunchOptions::sink_of(int rank, int stream) const {
  if (output.empty()) return Sink::screen;
  if (redirects.empty() && tees.empty()) return Sink::both;
  const auto wants = [&](const std::map<int, int>& masks) {
    auto found = masks.find(rank);
    if (found == masks.end()) found = masks.find(-1);
    return found != masks.end() && (found->second & stream) != 0;
  };
  if (wants(tees)) return Sink::both;
  return wants(redirects) ? Sink::file : Sink::screen;
}

std::string launch_help() {
  std::string text =
      "cohort run: start a program as several ranks of one job\n\n"
      "usage: cohort run [options] [--] program [arguments]\n\n"
      "  cohort run -n 4 ./train --epochs 3      four ranks on this host\n"
      "  cohort run -n 2 train.py                a Python script; --python names the interpreter\n"
      "  cohort run -n 2 -m package.train        a Python module\n"
      "  cohort run -n 4 --output logs ./train   output on the screen and in logs/rank.N/stdout, stderr\n"
      "  cohort run -H h1:4,h2:4 ./train         eight ranks on two hosts, reached by ssh\n"
      "  cohort run -n 4 --quiet --no-prefix --timeout 10min ./train > result.txt\n\n"
      "Every rank gets COHORT_RANK, COHORT_SIZE .. (cohort::init reads them), torchrun's RANK, LOCAL_RANK, WORLD_SIZE,\n"
      "MASTER_ADDR .. and HOROVOD_RANK, HOROVOD_SIZE .. The first rank that fails ends the job; its cause is the last thing printed and "
      "its\n"
      "exit status (128 + n for signal n) is the launcher's. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded; a second "
      "SIGINT\n"
      "kills. However the job ends, none of its processes outlives it, on any host. Options of torchrun and horovodrun are understood.\n\n"
      "options:\n";
  for (const OptionRow& row : option_rows()) {
    if (row.about.empty()) continue;
    const auto names = split(row.names, ' ');
    std::string left = names[0].starts_with("--") ? fmt::format("    {}", names[0]) : fmt::format("{}, {}", names[0], names[1]);
    if (!row.value.empty()) left += fmt::format(" {}", row.value);
    text += fmt::format("  {:<26} {}\n", left, about_text(row));
  }
  return text;
}

}  // namespace cohort::launch
