"""horovodrun: every option of Horovod's launcher is mapped, or has no effect and a note says so, or is refused with a message."""
import subprocess
import sys

import pytest

from cohort.horovodrun import Refused, main, plan
from cohort.horovodrun_options import OPTIONS
from launch import environment, stretched

# As the documents of Horovod's launcher name them.
KNOWN = """-np --num-proc --min-np --max-np --min-num-proc --max-num-proc --slots-per-host -H --hostfile --host-discovery-script
--reset-limit --elastic-timeout --blacklist-cooldown-range --gloo --mpi --jsrun --mpi-args --network-interface
--network-interfaces --start-timeout --output-filename --config-file --check-build --fusion-threshold-mb --cycle-time-ms
--cache-capacity --hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather --no-hierarchical-allgather
--torus-allreduce --no-torus-allreduce --autotune --autotune-log-file --autotune-warmup-samples --autotune-steps-per-sample
--autotune-bayes-opt-max-samples --autotune-gaussian-process-noise --timeline-filename --timeline-mark-cycles --no-stall-check
--stall-check-warning-time-seconds --stall-check-shutdown-time-seconds --log-level -p -i --verbose --gloo-timeout-seconds""".split()


def test_every_option_has_a_row_with_its_treatment():
    rows = {name: option for option in OPTIONS for name in option.names.split()}
    assert not [name for name in KNOWN if name not in rows]
    for option in OPTIONS:
        assert sum(map(bool, (option.about, option.idle, option.refused))) == 1, option.names
        assert sum(map(bool, (option.to, option.env, option.idle, option.refused))) <= 1, option.names


def test_a_plain_command():
    what = plan("-np 4 python train.py --lr 0.1 -np 9".split())
    assert what.run == ["-n", "4"] and what.command == "python train.py --lr 0.1 -np 9".split() and not what.env and not what.notes
    assert plan("--num-proc=2 -- ./train".split()).command == ["./train"]
    assert plan("--num_proc 2 ./train".split()).run == ["-n", "2"]


def test_options_of_the_launcher():
    what = plan("-np 2 --output-filename logs --start-timeout 60 --verbose --log-level DEBUG -H localhost:4 ./train".split())
    assert what.run == "-n 2 --output logs --start-timeout 60 --verbose --log-level DEBUG".split()


def test_options_of_the_queue_become_variables():
    what = plan("-np 2 --fusion-threshold-mb 0.5 --cache-capacity 7 --timeline-filename t.json --timeline-mark-cycles --no-stall-check "
                "--stall-check-warning-time-seconds 9 --stall-check-shutdown-time-seconds 20 --gloo-timeout-seconds 40 ./train".split())
    assert what.env == {"HOROVOD_FUSION_THRESHOLD": str(1 << 19), "HOROVOD_CACHE_CAPACITY": "7", "HOROVOD_TIMELINE": "t.json",
                        "HOROVOD_TIMELINE_MARK_CYCLES": "1", "HOROVOD_STALL_CHECK_DISABLE": "1", "HOROVOD_STALL_CHECK_TIME_SECONDS": "9",
                        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "20", "COHORT_TIMEOUT": "40"}


def test_hosts_give_slots(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=3\n# none\n127.0.0.1 slots=1\n")
    assert plan(["--hostfile", str(hosts), "./train"]).run == ["-n", "4"]
    assert plan("-H localhost:2,localhost:3 ./train".split()).run == ["-n", "5"]
    assert plan("-np 3 -H h1:2,h2:2 -p 2222 --network-interfaces eth0 ./train".split()).run == \
        ["-n", "3", "-H", "h1:2,h2:2", "--ssh-port", "2222", "--interface", "eth0"]
    assert plan("-H h1:2,localhost:2 ./train".split()).run == ["-H", "h1:2,localhost:2"]
    for wrong, why in (("-np 3 -H localhost:2 ./t", "2 slots"), ("-H localhost:x ./t", "slots"),
                       (f"-np 2 --hostfile {tmp_path}/none ./t", "No such file")):
        with pytest.raises(Refused, match=why):
            plan(wrong.split())


def test_options_of_elastic_jobs():
    assert plan("-np 3 --min-np 2 --max-np 4 --elastic-timeout 60 --reset-limit 5 ./train".split()).run == \
        "-n 3 --min-n 2 --max-n 4 --wait-limit 60".split()
    assert plan("-np 3 --min-np 2 --reset-limit 5 ./train".split()).env == {"COHORT_RESET_LIMIT": "5"}
    what = plan("-np 3 --min-num-proc 2 --blacklist-cooldown-range 10 100 ./train".split())
    assert what.run == "-n 3 --host-cool-down 10 --min-n 2".split() and "not to 100 s" in what.notes[0]
    # As with Horovod's launcher, a discovery script makes a job elastic, and -np is the least.
    assert plan("-np 3 --max-np 4 --host-discovery-script ./find ./train".split()).run == \
        "-n 3 --min-n 3 --max-n 4 --host-discovery-script ./find".split()
    assert plan("--host-discovery-script ./find ./train".split()).run == "--host-discovery-script ./find".split()
    for wrong, why in (("-np 2 --reset-limit 3 ./t", "--min-np"), ("-np 2 --elastic-timeout 3 ./t", "--min-np"),
                       ("-np 2 --min-np 1 --reset-limit few ./t", "no number"), ("-np 2 --min-np 1 --blacklist-cooldown-range 1 x ./t", "no number")):
        with pytest.raises(Refused, match=why):
            plan(wrong.split())


def test_options_without_effect_say_why():
    idle = [o for o in OPTIONS if o.idle]
    assert idle
    for option in idle:
        for name in option.names.split():
            what = plan(["-np", "2", name, *["1"] * option.values, "./train"])
            assert what.command == ["./train"] and [note.startswith(f"{name} has no effect here: ") for note in what.notes] == [True]


def test_options_that_are_refused_say_why():
    refused = [o for o in OPTIONS if o.refused]
    assert refused
    for option in refused:
        for name in option.names.split():
            with pytest.raises(Refused, match=f"^{name} is refused: .{{20,}}"):
                plan(["-np", "2", name, *["1"] * option.values, "./train"])


def test_wrong_command_lines():
    for wrong, why in (("./train", "number of ranks"), ("-np 2", "nothing to run"), ("-np two ./train", "number of ranks"), ("-np", "needs a value"),
                       ("-np 2 --nonsense ./train", "no option --nonsense"), ("-np 2 --verbose=1 ./train", "no value"),
                       ("-np 2 --fusion-threshold-mb much ./train", "no number"), ("--blacklist-cooldown-range 1", "needs 2 values")):
        with pytest.raises(Refused, match=why):
            plan(wrong.split())


CONFIG = """---
# tuning
verbose: true
params:
  fusion_threshold_mb: 32
  hierarchical-allreduce: false
timeline:
  filename: "/tmp/timeline.json"   # a trace
  mark-cycles: yes
stall-check:
  enabled: off
logging:
  level: INFO
"""


def test_a_config_file_is_a_command_line_that_counts_less(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    what = plan(["-np", "2", "--config-file", str(file), "--fusion-threshold-mb", "8", "./train"])
    assert what.env["HOROVOD_FUSION_THRESHOLD"] == str(8 << 20) and what.env["HOROVOD_TIMELINE"] == "/tmp/timeline.json"
    assert what.env["HOROVOD_STALL_CHECK_DISABLE"] == "1" and what.env["HOROVOD_TIMELINE_MARK_CYCLES"] == "1"
    assert what.run == ["-n", "2", "--verbose", "--log-level", "INFO"] and len(what.notes) == 1
    for text, why in (("- a\n", "line 1"), ("other:\n  a: 1\n", "no section 'other'"), ("  a: 1\n", "under no section"),
                      ("nonsense: 1\n", "no option")):
        file.write_text(text)
        with pytest.raises(Refused, match=why):
            plan(["-np", "2", "--config-file", str(file), "./train"])


def horovodrun(*args):
    command = [sys.executable, "-m", "cohort.horovodrun", *map(str, args)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=stretched(60))


SCRIPT = """
import torch
import horovod.torch as hvd
hvd.init()
print("sum", hvd.allreduce(torch.ones(1), op=hvd.Sum).item(), "of", hvd.size())
"""


def test_it_starts_ranks(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = horovodrun("-np", 2, "--cycle-time-ms", 5, "--start-timeout", 60, "--gloo-timeout-seconds", 50, sys.executable, script)
    assert done.returncode == 0 and done.stdout.count("sum 2.0 of 2") == 2, done.stderr
    assert "horovodrun: --cycle-time-ms has no effect here" in done.stderr
    assert horovodrun("-np", 2, "sh", "-c", "exit 5").returncode == 5


def test_help_version_build_and_refusals(capsys):
    assert main(["--help"]) == 0 and "--host-discovery-script" in capsys.readouterr().out
    assert main(["--version"]) == 0 and capsys.readouterr().out[0].isdigit()
    assert main(["--check-build"]) == 0 and "[X] PyTorch" in capsys.readouterr().out
    assert main(["-np", "2", "--mpi", "./train"]) == 2
    assert capsys.readouterr().err == "horovodrun: --mpi is refused: ranks communicate over Cohort's own transports\n"
