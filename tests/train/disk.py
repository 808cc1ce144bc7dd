"""Claims about damaged checkpoints and full disks: for check.py."""
import os
import re
import resource
import shutil
import signal
import subprocess

from runs import DEEP, LIMIT


def corrupt(runs):
    """One changed byte in the newest checkpoint: the one before serves, and the log says so. resume=must without any is refused,
    and so is a checkpoint of another rule."""
    runs.train("run", checkpoint__every_steps=10)
    older, newest = runs.checkpoints("run")[-2:]
    with open(f"{newest}/model.safetensors", "r+b") as file:
        file.seek(-100, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    done = runs.train("run", epochs=3)
    assert re.search(rf"error: checkpoint {re.escape(newest)} is damaged and was passed over: .*sha256", done.stderr), done.stderr
    assert f"goes on after update {int(older[-8:])}\n" in done.stdout, done.stdout
    other = runs.train("run", status=2, epochs=4, optimizer="adam(lr=1e-3)")
    assert re.fullmatch(r"cohort train: checkpoint .* was trained with sgd.* which adam.* needs: .*\n", other.stderr), other.stderr
    with open(runs.path("run") + "/config.yaml") as file:
        assert "optimizer: \"sgd" in file.read(), "the settings that were refused are kept as those of the run"
    none = runs.train("none", status=2, checkpoint__resume="must")
    assert none.stderr.splitlines() == [f"cohort train: checkpoint.resume is must, and {runs.path('none')}/checkpoints holds no whole checkpoint"], none.stderr


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
    done = way(runs, checkpoint__every_steps=2, checkpoint__keep=1)
    assert done.returncode == 1, f"{done.returncode}\n{done.stdout}{done.stderr}"
    assert re.search(r"updates +(20|38)\n", done.stdout), done.stdout
    assert re.search(r"the checkpoint of step \d+ was not written: .*(No space left on device|File too large)", done.stderr), done.stderr
    assert "its last checkpoint could not be written" in done.stderr, done.stderr
    left = os.listdir(runs.path("copy") + "/checkpoints")
    assert len(left) == 1 and left[0].startswith("step-"), left
    again = runs.train("copy", **model)  # with room again it goes on from what is there
    assert f"goes on after update {int(left[0][5:])}\n" in again.stdout and "damaged" not in again.stderr, again.stdout + again.stderr


def full_disk(runs):
    """No room for a second checkpoint: training goes on to its end, says what is missing, and the first checkpoint stays whole."""
    os.mkdir(runs.path("run"))
    mounts = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", runs.path("run")], capture_output=True, timeout=LIMIT)
    if mounts.returncode != 0:
        return file_limit(runs)
    outlives_the_disk(runs, on_small_disk)


def file_limit(runs):
    """The same when files may not grow, which needs no right to mount."""
    outlives_the_disk(runs, with_small_files, n=1, model=DEEP)
