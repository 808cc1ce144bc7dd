#include "cohort/cli/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <span>
#include <string_view>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/collective/engine.h"
#include "cohort/net/handshake.h"

namespace cohort::cli {
namespace {

using Text = const std::string&;

struct Option {
  std::string_view names;  // "-n --ranks -np": a short first one is shown with the second, a long one alone; all are understood
  std::string_view value;  // what help calls it; empty: a flag
  std::string_view about;  // empty: understood, not shown
  void (*apply)(RunOptions&, Text);
};

int whole(Text text, int least, int most) {
  const auto value = parse_int(text);
  if (value < least || value > most) throw_failure(Kind::usage, "'{}' is not a number from {} to {}", printable(text), least, most);
  return static_cast<int>(value);
}

void one_of(Text value, std::initializer_list<std::string_view> words) {
  if (std::find(words.begin(), words.end(), value) == words.end()) throw_unknown("word", value, std::span(words.begin(), words.size()));
}

void set_ranks(RunOptions& o, Text v) {
  if (v == "cpu") return void(o.ranks = "auto");
  if (v != "auto" && v != "gpu") whole(v, 1, 4096);
  o.ranks = v;
  o.ranks_given = true;
}

// "2", or torchrun's "2:2"; with two different numbers it asks for an elastic job.
void set_nodes(RunOptions& o, Text v) {
  const auto parts = split(v, ':');
  if (parts.size() == 2 && parts[0] != parts[1])
    throw_failure(Kind::usage,
                  "'{}' is refused: an elastic job has one launcher, which starts agents on its hosts by itself: -H h1:4,h2:4 (or a "
                  "--host-discovery-script) with --min-n; else give one number",
                  printable(v));
  o.nodes = whole(std::string(parts.empty() ? "" : parts[0]), 1, 4096);
}

// host[:port] of node 0.
void set_endpoint(RunOptions& o, Text v) {
  std::string_view host = v;
  if (const auto colon = host.rfind(':'); colon != host.npos && (!host.starts_with('[') || host[colon - 1] == ']')) {
    o.master_port = whole(std::string(host.substr(colon + 1)), 0, 65534);
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  o.master_addr = host;
}

// "3", or "0:1,1:2": rank:mask.
std::map<int, int> read_masks(Text v) {
  std::map<int, int> masks;
  for (const auto part : split(v, ',')) {
    const auto colon = part.find(':');
    const int rank = colon == part.npos ? -1 : whole(std::string(part.substr(0, colon)), 0, 4095);
    masks[rank] = whole(std::string(colon == part.npos ? part : part.substr(colon + 1)), 0, 3);
  }
  return masks;
}

void set_shown(RunOptions& o, Text v) {
  for (const auto part : split(v, ',')) o.shown.insert(whole(std::string(part), 0, 4095));
}

// Horovod's words are the same in capitals, and FATAL.
void set_log(RunOptions& o, Text v) {
  std::string word = v;
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word == "fatal") word = "error";
  one_of(word, {"trace", "debug", "info", "warning", "warn", "error", "off"});
  o.log_level = word;
}

void must_be(Text v, std::string_view only, std::string_view why) {
  if (v != only) throw_failure(Kind::usage, "'{}' is refused: {}", printable(v), why);
}

constexpr Option kOptions[] = {
    {"-n --ranks -np --num-proc --nproc-per-node --nprocs", "N", "how many ranks to start; 'auto' is one per core, 'gpu' one per GPU",
     set_ranks},
    {"-m --module", "", "the command is a Python module", [](RunOptions& o, Text) { o.module = true; }},
    {"--no-python", "", "run the command itself, also when it ends in .py", [](RunOptions& o, Text) { o.no_python = true; }},
    {"--stdin", "0|none", "who reads the standard input: rank 0, or nobody",
     [](RunOptions& o, Text v) {
       one_of(v, {"0", "none"}), o.input = v == "0" ? Stdin::first_rank : Stdin::none;
     }},

    {"-o --output --output-filename --log-dir", "DIR", "also write DIR/rank.N/stdout and DIR/rank.N/stderr",
     [](RunOptions& o, Text v) { o.output = v; }},
    {"-r --redirects", "MASK", "with --output, to the file only: 1 stdout, 2 stderr, 3 both; '0:1,1:3' by rank",
     [](RunOptions& o, Text v) { o.redirects = read_masks(v); }},
    {"-t --tee", "MASK", "with --output, to file and screen", [](RunOptions& o, Text v) { o.tees = read_masks(v); }},
    {"--show --local-ranks-filter", "R,R", "only these ranks on the screen", set_shown},
    {"--prefix", "", "begin every line with [rank] (the default)", [](RunOptions& o, Text) { o.prefix = true; }},
    {"--no-prefix", "", "leave lines as they are", [](RunOptions& o, Text) { o.prefix = false; }},
    {"--color", "WHEN", "auto, always or never; NO_COLOR is honoured",
     [](RunOptions& o, Text v) {
       one_of(v, {"auto", "always", "never"}), o.color = v;
     }},
    {"-q --quiet", "", "nothing of our own but errors", [](RunOptions& o, Text) { o.quiet = true; }},
    {"-v --verbose", "", "say what is started, where, and how it ended", [](RunOptions& o, Text) { o.verbose = true; }},
    {"--log-level", "LEVEL", "COHORT_LOG of the ranks: debug, info, warning, error", set_log},

    {"--comm", "WHO", "who moves bulk data: own, mpi, gloo, nccl, or auto: the fastest here (COHORT_COMM of the ranks; docs/engines.md)",
     [](RunOptions& o, Text v) {
       const auto words = collective::comm_words();
       const std::vector<std::string_view> known(words.begin(), words.end());
       if (std::find(known.begin(), known.end(), v) == known.end()) throw_unknown("word", v, known);
       o.variables["COHORT_COMM"] = v;
     }},
    {"--bits", "same|free", "free: results may depend on who adds in which order, as every --comm but own needs (COHORT_BITS)",
     [](RunOptions& o, Text v) {
       one_of(v, {"same", "free"}), o.variables["COHORT_BITS"] = v;
     }},

    {"--start-timeout", "TIME", "how long ranks may take to meet (30s)", [](RunOptions& o, Text v) { o.start_timeout = parse_seconds(v); }},
    {"--timeout", "TIME", "end the whole job after this, with exit status 124",
     [](RunOptions& o, Text v) { o.timeout = parse_seconds(v); }},
    {"--grace", "TIME", "after a failure, from SIGTERM to SIGKILL (1s)", [](RunOptions& o, Text v) { o.grace = parse_seconds(v); }},
    {"--stop-grace", "TIME", "after a signal from you, from forwarding it to SIGKILL (30s)",
     [](RunOptions& o, Text v) { o.stop_grace = parse_seconds(v); }},

    {"--min-n --min-np --min-num-proc", "N", "elastic: workers may be lost and come; below N the job waits for more",
     [](RunOptions& o, Text v) { o.least = whole(v, 1, 4096); }},
    {"--max-n --max-np --max-num-proc", "N", "elastic: at most N work at a time (as many as -n says)",
     [](RunOptions& o, Text v) { o.most = whole(v, 1, 4096); }},
    {"--respawns", "N", "elastic: lost workers that are replaced, in all (ten times -n)",
     [](RunOptions& o, Text v) { o.respawns = whole(v, 0, 1'000'000); }},
    {"--lost-after", "TIME", "elastic: a worker that is silent for so long is left behind (2s)",
     [](RunOptions& o, Text v) { o.lost_after = parse_seconds(v); }},
    {"--settle-limit", "TIME", "elastic: a worker that has not got the state so long after a change is left behind (2min)",
     [](RunOptions& o, Text v) { o.settle_limit = parse_seconds(v); }},
    {"--wait-limit --elastic-timeout", "TIME", "elastic: below --min-n workers the job waits so long, then gives up (10min)",
     [](RunOptions& o, Text v) { o.wait_limit = parse_seconds(v); }},
    {"--quorum", "RULE", "elastic: who goes on after a loss: minimum, --min-n workers; majority, and more than half of the last ones",
     [](RunOptions& o, Text v) {
       one_of(v, {"minimum", "majority"}), o.quorum = v == "majority" ? group::Quorum::majority : group::Quorum::minimum;
     }},
    {"--supervised", "", "elastic: the coordinator is a process of its own; killed, it is started again and training goes on",
     [](RunOptions& o, Text) { o.supervised = true; }},
    {"--host-cool-down", "TIME", "elastic: a host that was lost gets no workers for so long, twice as long each time (10s)",
     [](RunOptions& o, Text v) { o.host_cool_down = parse_seconds(v); }},
    {"--discovery-interval", "TIME", "elastic: between two questions to the --host-discovery-script (1s)",
     [](RunOptions& o, Text v) { o.discovery_interval = parse_seconds(v); }},

    {"--bind", "HOW", "none, core, numa, or auto: numa where there are several nodes, else none",
     [](RunOptions& o, Text v) {
       one_of(v, {"none", "core", "numa", "auto"}), o.bind = v;
     }},
    {"--threads", "N", "OMP_NUM_THREADS of each rank (cores / ranks)", [](RunOptions& o, Text v) { o.threads = whole(v, 1, 4096); }},
    {"--job --rdzv-id", "NAME", "the job's name, TORCHELASTIC_RUN_ID of the ranks", [](RunOptions& o, Text v) { o.job = v; }},
    {"--master-port", "PORT", "MASTER_PORT for the program's own use (a free one)",
     [](RunOptions& o, Text v) { o.master_port = whole(v, 0, 65535); }},
    {"-H --hosts --host", "HOSTS", "several hosts, h1:4,h2:4: agents start the ranks there, over ssh; without -n every slot gets one",
     [](RunOptions& o, Text v) { o.hosts = v; }},
    {"--hostfile -hostfile --host-file", "FILE", "the same from a file, a line each: `h1 slots=4` or `h1:4`",
     [](RunOptions& o, Text v) { o.host_file = v; }},
    {"--host-discovery-script", "CMD",
     "the same from a program that prints host or host:slots, a line each; asked once, or again and again with --min-n",
     [](RunOptions& o, Text v) { o.discovery = v; }},
    {"--slots-per-host --slots", "N", "ranks of a host that is named without a number (1)",
     [](RunOptions& o, Text v) { o.slots_per_host = whole(v, 1, 4096); }},
    {"--streams", "N", "sockets of every tcp link between ranks, 1 to 16; auto: one, or four where tcp paces",
     [](RunOptions& o, Text v) { o.streams = v == "auto" ? 0 : whole(v, 1, net::kMostStreams); }},
    {"--interface --network-interface --network-interfaces --nics", "NAME",
     "network interface (or several, by preference) for ranks and rendezvous; found out when not given",
     [](RunOptions& o, Text v) { o.interface = v; }},
    {"--tls", "", "encrypt what launcher and ranks say, by TLS 1.3 with a key from the job's secret (COHORT_TLS)",
     [](RunOptions& o, Text) { o.tls = true; }},
    {"--ssh", "CMD", "remote shell, with options of its own: CMD host command (COHORT_SSH, else ssh)",
     [](RunOptions& o, Text v) { o.ssh = v; }},
    {"-p --ssh-port", "PORT", "port of ssh on the other hosts", [](RunOptions& o, Text v) { o.ssh_port = whole(v, 1, 65535); }},
    {"-i --ssh-identity-file", "FILE", "key for ssh", [](RunOptions& o, Text v) { o.ssh_identity = v; }},
    {"--agent", "PATH", "cohort on the other hosts (the same path as here)", [](RunOptions& o, Text v) { o.agent = v; }},
    {"--nnodes", "N", "one launcher of N, each started on its node by somebody else (srun, Kubernetes); see `cohort agent --help`",
     set_nodes},
    {"--node-rank", "N", "which of them this is", [](RunOptions& o, Text v) { o.node = whole(v, 0, 4095); }},
    {"--master-addr", "HOST", "where node 0 is reached", [](RunOptions& o, Text v) { o.master_addr = v; }},
    {"-h --help", "", "this text", [](RunOptions& o, Text) { o.help = true; }},

    // Understood because scripts have them; they change nothing or must say what is so anyway.
    {"--standalone", "", "", [](RunOptions&, Text) {}},
    {"--rdzv-endpoint", "HOST", "", set_endpoint},
    {"--rdzv-backend", "NAME", "",
     [](RunOptions&, Text v) {
       if (v != "static" && v != "c10d") throw_failure(Kind::usage, "'{}' is refused: ranks meet inside this launcher", printable(v));
     }},
    {"--max-restarts", "N", "",
     [](RunOptions&, Text v) {
       must_be(v, "0", "ranks are not restarted all together; an elastic job (--min-n) replaces lost ones, --respawns of them");
     }},
    {"--monitor-interval", "TIME", "", [](RunOptions&, Text v) { parse_seconds(v); }},  // ends are noticed when they happen
    {"--role", "NAME", "", [](RunOptions& o, Text v) { o.role = v; }},
    {"--numa-binding", "HOW", "", [](RunOptions& o, Text v) { must_be(v, "node", "only whole NUMA nodes are known"), o.bind = "numa"; }},
};

struct Refusal {
  std::string_view names;
  std::string_view why;
};

constexpr Refusal kRefusals[] = {
    {"--reset-limit --blacklist-cooldown-range", "an elastic job is told --min-n, --max-n, --respawns, --lost-after and --host-cool-down"},
    {"--rdzv-conf --start-method --virtual-local-rank --logs-specs --duplicate-stdout-filters",
     "it steers an agent that does not exist here"},
    {"--signals-to-handle", "SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded, always"},
    {"--gloo --use-gloo", "say --comm gloo --bits free; without, ranks talk through cohort's own engine (docs/engines.md)"},
    {"--mpi --use-mpi --mpi-args --jsrun",
     "start the program by mpirun itself, with COHORT_COMM=mpi and COHORT_BITS=free where MPI is to move the data (docs/engines.md)"},
    {"--check-build -cb", "ask `cohort doctor` instead"},
    {"--config-file", "options belong on the command line"},
    {"--timeline-filename --timeline-mark-cycles --autotune --autotune-log-file --fusion-threshold-mb --cycle-time-ms --cache-capacity "
     "--no-stall-check --stall-check-warning-time-seconds --stall-check-shutdown-time-seconds --gloo-timeout-seconds "
     "--hierarchical-allreduce --hierarchical-allgather --disable-cache --prefix-output-with-timestamp",
     "it tunes Horovod's own engine, which is not used here"},
};

bool lists(std::string_view names, std::string_view name) {
  const auto all = split(names, ' ');
  return std::find(all.begin(), all.end(), name) != all.end();
}

[[noreturn]] void refuse(std::string_view name) {
  for (const Refusal& r : kRefusals)
    if (lists(r.names, name)) throw_failure(Kind::usage, "{} is refused: {}", name, r.why);
  std::vector<std::string_view> known;
  for (const Option& o : kOptions)
    for (const auto n : split(o.names, ' ')) known.push_back(n);
  const auto hint = nearest(name, known);
  throw_failure(Kind::usage, "there is no option {}{}; `cohort run --help` lists them; options of your program go after it, or after --",
                printable(name), hint.empty() ? "" : fmt::format(", did you mean {}?", hint));
}

const Option* find_option(std::string_view name) {
  for (const Option& o : kOptions)
    if (lists(o.names, name)) return &o;
  return nullptr;
}

void apply(RunOptions& options, const Option& option, std::string_view name, Text value) {
  try {
    option.apply(options, value);
  } catch (const Failure& failure) {
    throw_failure(Kind::usage, "{}: {}", name, failure.what());
  }
}

// torchrun reads every option from PET_<NAME> as well, and cluster operators set those.
void read_pet(RunOptions& options, const group::Environment& env) {
  for (const std::string_view name : {"nproc-per-node", "nnodes", "node-rank", "master-addr", "master-port", "rdzv-backend", "rdzv-id",
                                      "rdzv-endpoint", "max-restarts"}) {
    std::string variable = fmt::format("PET_{}", name);
    for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const auto at = env.find(variable);
    if (at != env.end() && !at->second.empty()) apply(options, *find_option(fmt::format("--{}", name)), variable, at->second);
  }
}

struct Word {
  std::string name;
  std::optional<std::string> value;
};

// "--start_timeout=5" is {"--start-timeout", "5"}; "-n4" is {"-n", "4"}.
Word take_apart(Text word) {
  if (word.starts_with("--")) {
    const auto equals = word.find('=');
    std::string name = word.substr(0, equals);
    std::replace(name.begin(), name.end(), '_', '-');
    return {name, equals == word.npos ? std::nullopt : std::optional(word.substr(equals + 1))};
  }
  const bool glued = word.size() > 2 && find_option(word) == nullptr && std::isdigit(static_cast<unsigned char>(word[2])) != 0;
  return glued ? Word{word.substr(0, 2), word.substr(2)} : Word{word, std::nullopt};
}

}  // namespace

RunOptions parse_run(const std::vector<std::string>& args, const group::Environment& environment) {
  RunOptions options;
  read_pet(options, environment);
  if (const auto tls = environment.find("COHORT_TLS"); tls != environment.end()) options.tls = parse_bool(tls->second);
  if (const auto wait = environment.find("COHORT_START_TIMEOUT"); wait != environment.end())
    options.start_timeout = parse_seconds(wait->second);
  std::size_t at = 0;
  for (; at < args.size(); ++at) {
    if (args[at] == "--") {
      ++at;
      break;
    }
    if (!args[at].starts_with('-') || args[at] == "-") break;
    Word word = take_apart(args[at]);
    const Option* option = find_option(word.name);
    if (option == nullptr) refuse(word.name);
    if (option->value.empty() && word.value)
      throw_failure(Kind::usage, "{} takes no value, '{}' was given", word.name, printable(*word.value));
    if (!option->value.empty() && !word.value) {
      if (++at == args.size()) throw_failure(Kind::usage, "{} needs a value: {}", word.name, option->value);
      word.value = args[at];
    }
    apply(options, *option, word.name, word.value.value_or(""));
  }
  options.command.assign(args.begin() + static_cast<std::ptrdiff_t>(std::min(at, args.size())), args.end());
  if (options.help) return options;
  if (options.command.empty())
    throw_failure(Kind::usage, "nothing to run: cohort run -n 4 -- ./program its arguments; `cohort run --help` tells more");
  if (options.output.empty() && (!options.redirects.empty() || !options.tees.empty()))
    throw_failure(Kind::usage, "--redirects and --tee need a folder: --output DIR");
  const int named = static_cast<int>(!options.hosts.empty()) + static_cast<int>(!options.host_file.empty()) +
                    static_cast<int>(!options.discovery.empty()) + static_cast<int>(options.nodes > 1);
  if (options.most > 0 && !options.elastic())
    throw_failure(Kind::usage, "--max-n without --min-n: an elastic job says how few workers it can go on with");
  if (options.supervised && !options.elastic())
    throw_failure(
        Kind::usage,
        "--supervised without --min-n: where no worker comes or goes nothing is decided after the ranks have met, and the job ends with "
        "its launcher");
  if (options.elastic() && options.nodes > 1)
    throw_failure(Kind::usage,
                  "an elastic job (--min-n) has one launcher, which starts agents on its hosts by itself: -H instead of --nnodes");
  if (options.elastic() && options.discovery_interval < Seconds{0.05})
    throw_failure(Kind::usage, "--discovery-interval {}: below 50 ms the script does nothing but start",
                  format_seconds(options.discovery_interval));
  if (options.elastic() && options.lost_after < Seconds{0.1})
    throw_failure(Kind::usage, "--lost-after {}: below 0.1 s every busy worker is taken for lost", format_seconds(options.lost_after));
  if (options.elastic() && std::min(options.settle_limit, options.wait_limit) < Seconds{1})
    throw_failure(Kind::usage, "--settle-limit {}, --wait-limit {}: below 1 s no worker has the time to come",
                  format_seconds(options.settle_limit), format_seconds(options.wait_limit));
  if (options.elastic() && options.variables.contains("COHORT_COMM") && options.variables.at("COHORT_COMM") != "own")
    throw_failure(Kind::usage, "--comm {} with --min-n: its ranks cannot come and go; leave out one of them",
                  options.variables.at("COHORT_COMM"));
  if (named > 1) throw_failure(Kind::usage, "hosts are named once: -H, --hostfile, --host-discovery-script or --nnodes");
  return options;
}

Sink RunOptions::sink_of(int rank, int stream) const {
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

std::string run_help() {
  std::string text =
      "cohort run: start a program as several ranks of one job\n\n"
      "usage: cohort run [options] [--] program [arguments]\n\n"
      "  cohort run -n 4 ./train --epochs 3      four ranks on this host\n"
      "  cohort run -n 2 train.py                a Python script (python3, or $PYTHON_EXEC)\n"
      "  cohort run -n 2 -m package.train        a Python module\n"
      "  cohort run -n 4 --output logs ./train   output on the screen and in logs/rank.N/stdout, stderr\n"
      "  cohort run -H h1:4,h2:4 ./train         eight ranks on two hosts, reached by ssh\n"
      "  cohort run -n 4 --quiet --no-prefix --timeout 10min ./train > result.txt\n\n"
      "Every rank finds its place in COHORT_RANK, COHORT_SIZE .. (cohort::init reads them), in torchrun's RANK, LOCAL_RANK, WORLD_SIZE,\n"
      "MASTER_ADDR .. and in HOROVOD_RANK, HOROVOD_SIZE .. The first rank that fails ends the job; its cause is the last thing printed and "
      "its\n"
      "exit status (128 + n for signal n) is the launcher's. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded; a second "
      "SIGINT\n"
      "kills. However the job ends, none of its processes outlives it, on any host. Options of torchrun and horovodrun are understood.\n\n"
      "options:\n";
  for (const Option& o : kOptions) {
    if (o.about.empty()) continue;
    const auto names = split(o.names, ' ');
    std::string left = names[0].starts_with("--") ? fmt::format("    {}", names[0]) : fmt::format("{}, {}", names[0], names[1]);
    if (!o.value.empty()) left += fmt::format(" {}", o.value);
    text += fmt::format("  {:<26} {}\n", left, o.about);
  }
  return text;
}

}  // namespace cohort::cli
