#include "cohort/launch/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/collective/plugin/backend.h"
#include "cohort/net/auth/handshake.h"

namespace cohort::launch {
namespace {

using Text = const std::string&;

int whole(Text text, int least, int most) {
  const auto value = parse_int(text);
  if (value < least || value > most) throw_failure(Kind::usage, "'{}' is not a number from {} to {}", printable(text), least, most);
  return static_cast<int>(value);
}

void one_of(Text value, std::initializer_list<std::string_view> words) {
  if (std::find(words.begin(), words.end(), value) == words.end()) throw_unknown("value", value, std::span(words.begin(), words.size()));
}

void set_ranks(LaunchOptions& o, Text v) {
  if (v == "cpu") return void(o.ranks = "auto");
  if (v != "auto" && v != "gpu") whole(v, 1, 4096);
  o.ranks = v;
  o.ranks_given = true;
}

// "2", or torchrun's "2:2"; with two different numbers it asks for an elastic job.
void set_nodes(LaunchOptions& o, Text v) {
  const auto parts = split(v, ':');
  if (parts.size() == 2 && parts[0] != parts[1])
    throw_failure(Kind::usage,
                  "'{}' is refused: an elastic job has one launcher, which starts agents on its hosts by itself: -H h1:4,h2:4 (or a "
                  "--host-discovery-script) with --min-n; else give one number",
                  printable(v));
  o.nodes = whole(std::string(parts.empty() ? "" : parts[0]), 1, 4096);
}

// host[:port] of node 0.
void set_endpoint(LaunchOptions& o, Text v) {
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

void set_shown(LaunchOptions& o, Text v) {
  for (const auto part : split(v, ',')) o.shown.insert(whole(std::string(part), 0, 4095));
}

// Horovod's words are the same in capitals, and FATAL.
void set_log(LaunchOptions& o, Text v) {
  std::string word = v;
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word == "fatal") word = "error";
  one_of(word, {"trace", "debug", "info", "warning", "warn", "error", "off"});
  o.log_level = word;
}

void set_backend(LaunchOptions& o, Text v) {
  const auto words = collective::backend_names();
  const std::vector<std::string_view> known(words.begin(), words.end());
  if (std::find(known.begin(), known.end(), v) == known.end()) throw_unknown("backend", v, known);
  o.variables["COHORT_BACKEND"] = v;
}

std::string backend_choices() { return join(collective::backend_names(), ", "); }

void must_be(Text v, std::string_view only, std::string_view why) {
  if (v != only) throw_failure(Kind::usage, "'{}' is refused: {}", printable(v), why);
}

constexpr OptionRow kOptions[] = {
    {"-n --ranks -np --np --num-proc --nproc-per-node --nprocs", "N", "how many ranks to start; 'auto' is one per core, 'gpu' one per GPU",
     set_ranks},
    {"-m --module", "", "the command is a Python module", [](LaunchOptions& o, Text) { o.module = true; }},
    {"--python", "PATH", "the interpreter of scripts and modules ($COHORT_PYTHON; that of the Python package's `cohort`; python3)",
     [](LaunchOptions& o, Text v) { o.python = v; }},
    {"--no-python", "", "run the command itself, also when it ends in .py", [](LaunchOptions& o, Text) { o.no_python = true; }},
    {"--stdin", "0|none", "who reads the standard input: rank 0, or nobody",
     [](LaunchOptions& o, Text v) {
       one_of(v, {"0", "none"}), o.input = v == "0" ? Stdin::first_rank : Stdin::none;
     }},

    {"-o --output --output-filename --log-dir", "DIR", "also write DIR/rank.N/stdout and DIR/rank.N/stderr",
     [](LaunchOptions& o, Text v) { o.output = v; }},
    {"-r --redirects", "MASK", "with --output, to the file only: 1 stdout, 2 stderr, 3 both; '0:1,1:3' by rank",
     [](LaunchOptions& o, Text v) { o.redirects = read_masks(v); }},
    {"-t --tee", "MASK", "with --output, to file and screen", [](LaunchOptions& o, Text v) { o.tees = read_masks(v); }},
    {"--show --local-ranks-filter", "R,R", "only these ranks on the screen", set_shown},
    {"--prefix", "", "begin every line with [rank] (the default)", [](LaunchOptions& o, Text) { o.prefix = true; }},
    {"--no-prefix", "", "leave lines as they are", [](LaunchOptions& o, Text) { o.prefix = false; }},
    {"--color", "WHEN", "auto, always or never; NO_COLOR is honoured",
     [](LaunchOptions& o, Text v) {
       one_of(v, {"auto", "always", "never"}), o.color = v;
     }},
    {"-q --quiet", "", "nothing of our own but errors", [](LaunchOptions& o, Text) { o.quiet = true; }},
    {"-v --verbose", "", "say what is started, where, and how it ended", [](LaunchOptions& o, Text) { o.verbose = true; }},
    {"--log-level", "LEVEL", "COHORT_LOG of the ranks: debug, info, warning, error", set_log},

    {"--backend", "NAME", "who moves bulk data: {}; auto is the fastest here (COHORT_BACKEND of the ranks; docs/backends.md)", set_backend,
     backend_choices},
    {"--deterministic", "true|false",
     "false: results may depend on the order of additions, as every --backend but native needs (COHORT_DETERMINISTIC)",
     [](LaunchOptions& o, Text v) {
       one_of(v, {"true", "false"}), o.variables["COHORT_DETERMINISTIC"] = v;
     }},

    {"--start-timeout", "TIME", "how long the rendezvous of the ranks may take (30s)",
     [](LaunchOptions& o, Text v) { o.start_timeout = parse_seconds(v); }},
    {"--timeout", "TIME", "end the whole job after this, with exit status 124",
     [](LaunchOptions& o, Text v) { o.timeout = parse_seconds(v); }},
    {"--grace", "TIME", "after a failure, from SIGTERM to SIGKILL (1s)", [](LaunchOptions& o, Text v) { o.grace = parse_seconds(v); }},
    {"--stop-grace", "TIME", "after a signal from you, from forwarding it to SIGKILL (30s)",
     [](LaunchOptions& o, Text v) { o.stop_grace = parse_seconds(v); }},

    {"--min-n --min-np --min-num-proc", "N", "elastic: workers may be lost and join; below N the job waits for more",
     [](LaunchOptions& o, Text v) { o.min_workers = whole(v, 1, 4096); }},
    {"--max-n --max-np --max-num-proc", "N", "elastic: at most N work at a time (as many as -n says)",
     [](LaunchOptions& o, Text v) { o.max_workers = whole(v, 1, 4096); }},
    {"--respawns", "N", "elastic: lost workers that are replaced, in all (ten times -n)",
     [](LaunchOptions& o, Text v) { o.respawns = whole(v, 0, 1'000'000); }},
    {"--lost-after", "TIME", "elastic: a worker without heartbeats for so long is evicted from the job (2s)",
     [](LaunchOptions& o, Text v) { o.lost_after = parse_seconds(v); }},
    {"--settle-limit", "TIME", "elastic: a worker that has not received the state so long after a membership change is evicted (2min)",
     [](LaunchOptions& o, Text v) { o.settle_limit = parse_seconds(v); }},
    {"--wait-limit --elastic-timeout", "TIME", "elastic: below --min-n workers the job waits so long, then gives up (10min)",
     [](LaunchOptions& o, Text v) { o.wait_limit = parse_seconds(v); }},
    {"--quorum", "RULE", "elastic: who goes on after a loss: minimum, --min-n workers; majority, also more than half of the last ones",
     [](LaunchOptions& o, Text v) {
       one_of(v, {"minimum", "majority"}), o.quorum = v == "majority" ? elastic::Quorum::majority : elastic::Quorum::minimum;
     }},
    {"--worker-state", "WHAT",
     "elastic: what a worker holds of the state of training: whole; shard, its rank's part; buddy, also a copy of the part before "
     "(sync=zero, and with buddy=true)",
     [](LaunchOptions& o, Text v) {
       using elastic::HeldState;
       one_of(v, {"whole", "shard", "buddy"});
       o.held_state = v == "whole" ? HeldState::whole : v == "shard" ? HeldState::shard : HeldState::shard_and_buddy;
     }},
    {"--supervised", "", "elastic: the coordinator is a process of its own; killed, it is started again and training goes on",
     [](LaunchOptions& o, Text) { o.supervised = true; }},
    {"--host-cool-down", "TIME", "elastic: a host that was lost gets no workers for so long, twice as long each time (10s)",
     [](LaunchOptions& o, Text v) { o.host_cool_down = parse_seconds(v); }},
    {"--discovery-interval", "TIME", "elastic: between two runs of the --host-discovery-script (1s)",
     [](LaunchOptions& o, Text v) { o.discovery_interval = parse_seconds(v); }},

    {"--bind", "HOW", "none, core, numa, or auto: numa where there are several nodes, else none",
     [](LaunchOptions& o, Text v) {
       one_of(v, {"none", "core", "numa", "auto"}), o.bind = v;
     }},
    {"--threads", "N", "OMP_NUM_THREADS of each rank (cores / ranks)", [](LaunchOptions& o, Text v) { o.threads = whole(v, 1, 4096); }},
    {"--job --rdzv-id", "NAME", "the job's name, TORCHELASTIC_RUN_ID of the ranks", [](LaunchOptions& o, Text v) { o.job = v; }},
    {"--master-port", "PORT", "MASTER_PORT for the program's own use (a free one)",
     [](LaunchOptions& o, Text v) { o.master_port = whole(v, 0, 65535); }},
    {"-H --hosts --host", "HOSTS", "several hosts, h1:4,h2:4: agents start the ranks there, over ssh; without -n every slot gets one",
     [](LaunchOptions& o, Text v) { o.hosts = v; }},
    {"--hostfile -hostfile --host-file", "FILE", "the same from a file, a line each: `h1 slots=4` or `h1:4`",
     [](LaunchOptions& o, Text v) { o.host_file = v; }},
    {"--host-discovery-script", "CMD",
     "the same from a program that prints host or host:slots, a line each; run once, or again and again with --min-n",
     [](LaunchOptions& o, Text v) { o.discovery_script = v; }},
    {"--slots-per-host --slots", "N", "ranks of a host that is named without a number (1)",
     [](LaunchOptions& o, Text v) { o.slots_per_host = whole(v, 1, 4096); }},
    {"--streams", "N", "sockets of every tcp link between ranks, 1 to 16; auto: one, or four where tcp paces",
     [](LaunchOptions& o, Text v) { o.streams = v == "auto" ? 0 : whole(v, 1, net::kMostStreams); }},
    {"--interface --network-interface --network-interfaces --nics", "NAME",
     "network interface (or several, by preference) for ranks and rendezvous; detected when not given",
     [](LaunchOptions& o, Text v) { o.interface = v; }},
    {"--tls", "", "encrypt the connections of launcher and ranks: TLS 1.3 with a key from the job's secret (COHORT_TLS)",
     [](LaunchOptions& o, Text) { o.tls = true; }},
    {"--ssh", "CMD", "remote shell, with options of its own: CMD host command (COHORT_SSH, else ssh)",
     [](LaunchOptions& o, Text v) { o.ssh = v; }},
    {"-p --ssh-port", "PORT", "port of ssh on the other hosts", [](LaunchOptions& o, Text v) { o.ssh_port = whole(v, 1, 65535); }},
    {"-i --ssh-identity-file", "FILE", "key for ssh", [](LaunchOptions& o, Text v) { o.ssh_identity = v; }},
    {"--agent", "PATH", "cohort on the other hosts (the same path as here)", [](LaunchOptions& o, Text v) { o.agent = v; }},
    {"--nnodes", "N", "one launcher of N, each started on its node by somebody else (srun, Kubernetes); see `cohort agent --help`",
     set_nodes},
    {"--node-rank", "N", "which of them this is", [](LaunchOptions& o, Text v) { o.node = whole(v, 0, 4095); }},
    {"--master-addr", "HOST", "where node 0 is reached", [](LaunchOptions& o, Text v) { o.master_addr = v; }},
    {"-h --help", "", "this text", [](LaunchOptions& o, Text) { o.help = true; }},

    // Understood because scripts have them; they change nothing or must say what is so anyway.
    {"--standalone", "", "", [](LaunchOptions&, Text) {}},
    {"--rdzv-endpoint", "HOST", "", set_endpoint},
    {"--rdzv-backend", "NAME", "",
     [](LaunchOptions&, Text v) {
       if (v != "static" && v != "c10d")
         throw_failure(Kind::usage, "'{}' is refused: the rendezvous is inside this launcher", printable(v));
     }},
    {"--max-restarts", "N", "",
     [](LaunchOptions&, Text v) {
       must_be(v, "0", "ranks are not restarted all together; an elastic job (--min-n) replaces lost ones, --respawns of them");
     }},
    {"--monitor-interval", "TIME", "", [](LaunchOptions&, Text v) { parse_seconds(v); }},  // ends are noticed when they happen
    {"--role", "NAME", "", [](LaunchOptions& o, Text v) { o.role = v; }},
    {"--numa-binding", "HOW", "", [](LaunchOptions& o, Text v) { must_be(v, "node", "only whole NUMA nodes are known"), o.bind = "numa"; }},
};

struct Refusal {
  std::string_view names;
  std::string_view why;
};

constexpr Refusal kRefusals[] = {
    {"--reset-limit --blacklist-cooldown-range", "an elastic job has --min-n, --max-n, --respawns, --lost-after and --host-cool-down"},
    {"--rdzv-conf --start-method --virtual-local-rank --logs-specs --duplicate-stdout-filters",
     "it configures torchrun's agent, which is not used here"},
    {"--signals-to-handle", "SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded, always"},
    {"--gloo --use-gloo", "say --backend gloo --deterministic false; without, ranks use the native backend (docs/backends.md)"},
    {"--mpi --use-mpi --mpi-args --jsrun",
     "start the program by mpirun itself, with COHORT_BACKEND=mpi and COHORT_DETERMINISTIC=false where MPI is to move the data "
     "(docs/backends.md)"},
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

}  // namespace

std::span<const OptionRow> option_rows() { return kOptions; }

const OptionRow* find_option(std::string_view name) {
  for (const OptionRow& row : kOptions)
    if (lists(row.names, name)) return &row;
  return nullptr;
}

std::string about_text(const OptionRow& row) {
  return row.choices == nullptr ? std::string(row.about) : fmt::format(fmt::runtime(row.about), row.choices());
}

void apply_option(LaunchOptions& options, const OptionRow& row, std::string_view name, const std::string& value) {
  try {
    row.apply(options, value);
  } catch (const Failure& failure) {
    throw_failure(Kind::usage, "{}: {}", name, failure.what());
  }
}

void refuse_option(std::string_view name) {
  for (const Refusal& r : kRefusals)
    if (lists(r.names, name)) throw_failure(Kind::usage, "{} is refused: {}", name, r.why);
  std::vector<std::string_view> known;
  for (const OptionRow& row : kOptions)
    for (const auto n : split(row.names, ' ')) known.push_back(n);
  throw_failure(Kind::usage, "there is no option {}{}; `cohort run --help` lists them; options of your program go after it, or after --",
                printable(name), option_hint(name, known));
}

}  // namespace cohort::launch
