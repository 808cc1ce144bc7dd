"""The options of horovodrun, one row each.

A row becomes an option of `cohort run` or a variable for the ranks, or is accepted with a sentence that says why it changes nothing here, or is
refused with a sentence. To add an option: a row.
"""
from dataclasses import dataclass

TRANSPORT = "ranks communicate over Cohort's own transports"


@dataclass(frozen=True)
class Option:
    """One row: at most one of `to` (an option of `cohort run`), `env` (a variable of the ranks), `idle` and `refused` (sentences)."""

    names: str
    values: int = 0
    to: str = ""
    env: str = ""
    fixed: str = ""  # what env is set to by an option without value
    scale: int = 0  # env is the value times this
    idle: str = ""
    refused: str = ""
    about: str = ""


OPTIONS = (
    Option("-np --num-proc -n", 1, to="-n", about="how many ranks to start"),
    Option("-H --hosts --host", 1, about="localhost:4 or h1:2,h2:2: as many slots as ranks may be started; other hosts by ssh"),
    Option("--hostfile -hostfile --host-file", 1, about="a file of lines `h1 slots=4`"),
    Option("--host-discovery-script", 1, to="--host-discovery-script",
           about="a program that prints host or host:slots, a line each; with -np or --min-np the job is elastic, and it is asked every second"),
    Option("--min-np --min-num-proc", 1, to="--min-n", about="elastic: ranks come and go; below so many the job waits for more"),
    Option("--max-np --max-num-proc", 1, to="--max-n", about="elastic: at most so many ranks at a time; as many as -np by default"),
    Option("--elastic-timeout", 1, to="--wait-limit", about="elastic: seconds that the job waits for --min-np ranks before it gives up"),
    Option("--reset-limit", 1, env="COHORT_RESET_LIMIT", about="elastic: how many times the ranks may change before the job is given up"),
    Option("--blacklist-cooldown-range", 2, about="elastic: a host that was lost gets no ranks for MIN seconds, twice as long each time, up to 64 times that"),
    Option("--slots-per-host --slots", 1, to="--slots-per-host", about="slots of a host that is named without a number"),
    Option("-p --ssh-port", 1, to="--ssh-port", about="port of ssh on the other hosts"),
    Option("-i --ssh-identity-file", 1, to="--ssh-identity-file", about="key for ssh"),
    Option("--network-interface --network-interfaces --nics", 1, to="--interface", about="by which ranks reach each other; found out when not given"),
    Option("--output-filename", 1, to="--output", about="a folder for rank.N/stdout and rank.N/stderr"),
    Option("--start-timeout", 1, to="--start-timeout", about="seconds the ranks may take to connect"),
    Option("--verbose", to="--verbose", about="say what is started, where, and how it ended"),
    Option("--log-level", 1, to="--log-level", about="TRACE, DEBUG, INFO, WARNING, ERROR, FATAL"),
    Option("-v --version", about="the version"),
    Option("-cb --check-build", about="what this build can do"),
    Option("-h --help", about="this text"),
    Option("--config-file", 1, about="a YAML file of options; those on the command line count more"),

    Option("--fusion-threshold-mb", 1, env="HOROVOD_FUSION_THRESHOLD", scale=1 << 20, about="most MiB that are reduced as one"),
    Option("--cache-capacity", 1, env="HOROVOD_CACHE_CAPACITY", about="how many names are sent as ids"),
    Option("--disable-cache", env="HOROVOD_CACHE_CAPACITY", fixed="0", about="names are always sent in full"),
    Option("--timeline-filename", 1, env="HOROVOD_TIMELINE", about="a Chrome trace of all operations"),
    Option("--timeline-mark-cycles", env="HOROVOD_TIMELINE_MARK_CYCLES", fixed="1", about="with the negotiation cycles in it"),
    Option("--no-timeline-mark-cycles", env="HOROVOD_TIMELINE_MARK_CYCLES", fixed="0", about="without them"),
    Option("--no-stall-check", env="HOROVOD_STALL_CHECK_DISABLE", fixed="1", about="no report about ranks that wait for others"),
    Option("--stall-check", env="HOROVOD_STALL_CHECK_DISABLE", fixed="0", about="a report about them"),
    Option("--stall-check-warning-time-seconds", 1, env="HOROVOD_STALL_CHECK_TIME_SECONDS", about="after so long"),
    Option("--stall-check-shutdown-time-seconds", 1, env="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", about="and the end of the job after so long"),
    Option("--gloo-timeout-seconds", 1, env="COHORT_TIMEOUT", about="longest wait of an operation"),

    Option("--cycle-time-ms", 1, idle="the queue is driven by events; there are no cycles to set the length of"),
    Option("--gloo --use-gloo", idle="Cohort's native backend takes Gloo's place"),
    Option("--tcp --tcp-flag", idle="shared memory is used where it can be; COHORT_TRANSPORT=tcp asks for tcp"),
    Option("--autotune", idle="there is nothing to tune at run time: costs are measured once, by `cohort bench --calibrate`"),
    Option("--no-autotune", idle="nothing is tuned at run time"),
    Option("--autotune-log-file --autotune-warmup-samples --autotune-steps-per-sample --autotune-bayes-opt-max-samples "
           "--autotune-gaussian-process-noise", 1, idle="nothing is tuned at run time"),
    Option("--hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather --no-hierarchical-allgather --torus-allreduce "
           "--no-torus-allreduce", idle="on one host there is one level"),
    Option("--prefix-output-with-timestamp --prefix-timestamp", idle="lines begin with [rank]; there are no times in front of them"),
    Option("--thread-affinity", 1, idle="there is no background thread to bind; `cohort run --bind core` binds ranks"),
    Option("--num-nccl-streams --ccl-bgt-affinity --mpi-threads-disable --no-mpi-threads-disable", 1, idle=TRANSPORT),
    Option("--log-with-timestamp --log-hide-timestamp --log-without-timestamp --no-log-hide-timestamp",
           idle="lines of the log have the form that COHORT_LOG's have"),

    Option("--mpi --use-mpi --jsrun --use-jsrun", refused=TRANSPORT),
    Option("--mpi-args --binding-args", 1, refused=TRANSPORT),
)

BY_NAME = {name: option for option in OPTIONS for name in option.names.split()}
