"""Claims about damaged checkpoints and full disks: for check.py."""
import os
import re
import resource
import shutil
import signal
import subprocess

from runs import DEEP, LIMIT


def change_a_byte(checkpoint):
    with open(f"{checkpoint}/model.safetensors", "r+b") as file:
        file.seek(-100, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def corrupt(runs):
    """One changed byte in the newest checkpoint: the one before serves, and the log says so. One in each of them: the run stops instead of
    beginning again. resume=must without any is refused, and so is a checkpoint of another rule."""
    runs.train("run", checkpoint__every_steps=10)
    older, newest = runs.checkpoints("run")[-2:]
    change_a_byte(newest)
    done = runs.train("run", epochs=3)
    assert re.search(rf"error: checkpoint {re.escape(newest)} is damaged and was passed over: .*sha256", done.stderr), done.stderr
    assert f"goes on after update {int(older[-8:])}\n" in done.stdout, done.stdout
    other = runs.train("run", status=2, epochs=4, optimizer="adam(lr=1e-3)")
    assert re.fullmatch(r"cohort train: the run cannot resume from .*: optimizer: sgd\(.*\) -> adam\(lr=1e-3\): its state does not fit: .*"
                        r"checkpoint.allow=optimizer.*\n", other.stderr), other.stderr
    with open(runs.path("run") + "/config.yaml") as file:
        assert "optimizer: \"sgd" in file.read(), "the settings that were refused are kept as those of the run"
    left = runs.checkpoints("run")
    for path in left:
        change_a_byte(path)
    lost = runs.train("run", status=2, epochs=4).stderr.splitlines()[-1]
    assert lost.startswith(f"cohort train: none of the checkpoints in {runs.path('run')}/checkpoints can be used ({len(left)}): "), lost
    assert all(f"{os.path.basename(path)}: " in lost for path in left) and "--set checkpoint.resume=never" in lost, lost
    assert runs.checkpoints("run") == left, "checkpoints that may be repaired are gone"
    none = runs.train("none", status=2, checkpoint__resume="must")
    where = f"{runs.path('none')}/checkpoints"
    assert none.stderr.startswith(f"cohort train: checkpoint.resume is must, and there is no checkpoint in {where}; "), none.stderr


def on_small_disk(runs, **sets):
    """Runs it with its folder `run` on a disk of 400 KiB, of which `copy` is what is left."""
    script = f'mount -t tmpfs -o size=400k none "$0" && {{ "$@"; code=$?; cp -r "$0" {runs.path("copy")}; exit $code; }}'
    return subprocess.run(["unshare", "-rm", "sh", "-c", script, runs.path("run")] + runs.command("run", **sets), capture_output=True,
                          text=True, timeout=LIMIT, env=runs.env, cwd=runs.folder)


def with_small_files(runs, **sets):
    """One checkpoint is there, and no file may grow as large as another would need. Buckets are files too."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (110_000, 110_000))

    sets.update(n=1, model=DEEP, engine__bucket="8KiB", engine__first_bucket="8KiB")
    runs.train("run", n=1, model=DEEP, epochs=1)
    done = subprocess.run(runs.command("run", **sets), capture_output=True, text=True, timeout=LIMIT, env=runs.env, cwd=runs.folder,
                          preexec_fn=limit)
    shutil.copytree(runs.path("run"), runs.path("copy"))
    return done


def outlives_the_disk(runs, way, **model):
    done = way(runs, checkpoint__every_steps=2, checkpoint__keep=1, checkpoint__last_try="1s")
    assert done.returncode == 1, f"{done.returncode}\n{done.stdout}{done.stderr}"
    assert re.search(r"updates +(20|38)\n", done.stdout), done.stdout
    assert re.search(r"the checkpoint of step \d+ was not written: .*(No space left on device|File too large)", done.stderr), done.stderr
    assert "its last checkpoint could not be written" in done.stderr, done.stderr
    left = sorted(name for name in os.listdir(runs.path("copy") + "/checkpoints") if name != ".fence")
    assert len(left) == 1 and left[0].startswith("step-"), left
    lost = re.search(r"could not be written: updates (\d+) to (20|38) are lost; \S+/(step-\d+) is kept", done.stderr)
    assert lost and lost[3] == left[0] and int(lost[1]) == int(left[0][5:]) + 1, done.stderr
    assert "the last checkpoint is tried again, for 1 s at most" in done.stderr, done.stderr
    again = runs.train("copy", **model)  # with room again it goes on from what is there
    assert f"goes on after update {int(left[0][5:])}\n" in again.stdout and "damaged" not in again.stderr, again.stdout + again.stderr


def full_disk(runs):
    """No room for a second checkpoint: training goes on to its end, says what is missing, and the first checkpoint stays whole. Needs the
    right to mount (tools/test_needs.py)."""
    os.mkdir(runs.path("run"))
    outlives_the_disk(runs, on_small_disk)


def file_limit(runs):
    """The same when files may not grow, which needs no right to mount."""
    outlives_the_disk(runs, with_small_files, n=1, model=DEEP)
