"""Histories of several launches of one run, judged as one: a launch counts its membership epochs from 1, so later ones are moved behind those before."""
import glob
import json
import os
import subprocess
import tempfile


def moved(folder, epochs_before):
    """The whole lines of a launch, by file, with its epochs after those before; and the last of them."""
    files, last = {}, epochs_before
    for path in glob.glob(folder + "/*.jsonl"):
        with open(path) as file:
            text = file.read()
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        for line in lines:
            line["epoch"] += epochs_before
            last = max(last, line["epoch"])
        files[os.path.basename(path)] = lines
    return files, last


def judge_launches(programs, folders):
    """What check_history says of the launches in these folders, in order; empty when every promise was kept."""
    with tempfile.TemporaryDirectory(prefix="cohort-history-") as together:
        epochs, paths = 0, []
        for i, folder in enumerate(folders):
            files, epochs = moved(folder, epochs)
            for name, lines in files.items():
                paths.append(os.path.join(together, f"{i}-{name}"))
                with open(paths[-1], "w") as file:
                    file.writelines(json.dumps(line) + "\n" for line in lines)
        if not paths:
            return ""
        done = subprocess.run([os.path.join(programs, "check_history"), *paths], capture_output=True, text=True, timeout=300)
        return "" if done.returncode == 0 else done.stdout + done.stderr
