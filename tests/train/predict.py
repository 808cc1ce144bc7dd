#!/usr/bin/env python3
"""What `cohort train` learned, used by `cohort predict` and by Python alike: predict.py <folder of programs>. Exit status 0 when it fits."""
import csv
import gzip
import json
import os
import re
import struct
import sys
import tempfile
import zlib

import torch
from safetensors.torch import load_file

from runs import Runs

DATA = "/usr/share/datasets/fashion-mnist/t10k-{}-ubyte.gz"
NAMES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


def test_images(count):
    with gzip.open(DATA.format("images-idx3")) as images, gzip.open(DATA.format("labels-idx1")) as labels:
        pixels = torch.frombuffer(bytearray(images.read()[16 : 16 + count * 784]), dtype=torch.uint8).reshape(count, 28, 28)
        return pixels, torch.frombuffer(bytearray(labels.read()[8 : 8 + count]), dtype=torch.uint8)


def png(pixels):
    """A grey picture, every pixel four: the resize back gives the picture itself."""
    pixels = pixels.repeat_interleave(2, 0).repeat_interleave(2, 1)
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + bytes(row.tolist()) for row in pixels)
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def torch_model(checkpoint):
    """The weights under the names and shapes of torch's own layers, and the normalisation that the manifest tells."""
    model = torch.nn.Sequential()
    model.add_module("fc1", torch.nn.Linear(784, 32))
    model.add_module("relu", torch.nn.ReLU())
    model.add_module("head", torch.nn.Linear(32, 10))
    model.load_state_dict(load_file(checkpoint + "/model.safetensors"))  # strict: every name, every shape
    with open(checkpoint + "/manifest.json") as file:
        text = json.load(file)["texts"]["transforms"]
    mean, std = (float(re.search(rf"{word}=([\d.e-]+)", text)[1]) for word in ("mean", "std"))
    return lambda pixels: model((pixels.flatten(1) / 255 - mean) / std)


def learns_the_same(runs, checkpoint):
    pixels, labels = test_images(1000)
    with torch.no_grad():
        logits = torch_model(checkpoint)(pixels)
    correct = int((logits.argmax(1) == labels).sum())
    line = json.loads(runs.call([runs.cohort, "predict", runs.path("run"), "--data", "fashion_mnist(split=test)", "--limit", "1000", "--json"]).stdout)
    assert line["correct"] == correct and line["samples"] == 1000 and correct > 600, (line, correct)
    files = []
    for i in range(3):
        files.append(runs.path(f"{i}.png"))
        with open(files[-1], "wb") as file:
            file.write(png(pixels[i]))
    answers = runs.call([runs.cohort, "predict", checkpoint, "--json", "--top", "2", *files]).stdout.splitlines()
    for i, answer in enumerate(map(json.loads, answers)):
        best = logits[i].softmax(0).topk(2)
        assert answer["file"] == files[i] and len(answer["guesses"]) == 2, answer
        for guess, share, label in zip(answer["guesses"], best.values, best.indices):
            assert guess["label"] == label and guess["name"] == NAMES[label] and abs(guess["probability"] - share) < 1e-3, (guess, share)
    return files


def refuses(runs, files):
    with open(runs.path("notes.txt"), "w") as file:
        file.write("no picture")
    done = runs.call([runs.cohort, "predict", runs.path("run"), "notes.txt", files[0], "gone.png"], status=1)
    assert re.fullmatch(rf"{re.escape(files[0])}: [\w /-]+ [\d.]+ %,.*\n", done.stdout), done.stdout
    assert "notes.txt: starts with 'no pictu'" in done.stderr and "gone.png" in done.stderr, done.stderr
    assert "there is no folder" in runs.call([runs.cohort, "predict", "nowhere", files[0]], status=2).stderr
    assert "nothing to classify" in runs.call([runs.cohort, "predict", runs.path("run")], status=2).stderr
    os.makedirs(runs.path("empty/checkpoints"))
    assert "holds no checkpoint yet" in runs.call([runs.cohort, "predict", runs.path("empty"), files[0]], status=2).stderr


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def takes_folders(runs, files):
    os.makedirs(runs.path("new"))
    for name in files:
        os.link(name, runs.path("new/" + os.path.basename(name)))
    done = runs.call([runs.cohort, "predict", runs.path("run"), runs.path("new"), "--out", runs.path("new.csv")])
    found = rows_of(runs.path("new.csv"))
    assert [row["file"] for row in found] == [runs.path("new/" + os.path.basename(name)) for name in sorted(files)], found
    assert done.stdout == "" and all(0 < float(row["probability"]) <= 1 for row in found), (done.stdout, found)
    singles = runs.call([runs.cohort, "predict", runs.path("run"), "--top", "1", "--json", *sorted(files)]).stdout.splitlines()
    assert [row["prediction"] for row in found] == [json.loads(line)["guesses"][0]["name"] for line in singles], (found, singles)


def learns_tables(runs):
    def table(name, columns, lines):
        with open(runs.path(name), "w") as file:
            file.write(columns + "\n" + "".join(line + "\n" for line in lines))
        return runs.path(name)

    points = [(i * 37 % 101 - 50, i * 53 % 97 - 48) for i in range(200)]
    labelled = table("points.csv", "id,x,y,side", (f"{i},{x},{y},{'far' if x + y > 0 else 'near'}" for i, (x, y) in enumerate(points)))
    bare = table("bare.csv", "y,x", (f"{y},{x}" for x, y in points[:20]))
    spec = f"csv(file={labelled}, label=side, ignore=id)"
    said = runs.train("sides", n=2, **{"model": "mlp(hidden=8)", "data.train": spec, "data.test": spec, "data.batch": 10, "epochs": 12,
                                       "optimizer": "adam(lr=0.02)"}).stdout
    assert "model: in=2, out=2 as in data.train" in said and "mlp(hidden=8, in=2, out=2)" in said, said
    done = runs.call([runs.cohort, "predict", runs.path("sides"), bare])
    found = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["row"] for row in found] == [str(i) for i in range(1, 21)] and list(found[0]) == ["row", "prediction", "probability"], found
    right = sum(row["prediction"] == ("far" if x + y > 0 else "near") for row, (x, y) in zip(found, points))
    assert right >= 15, found
    score = runs.call([runs.cohort, "predict", runs.path("sides"), labelled, "--out", runs.path("sides.csv")]).stdout
    assert "accuracy" in score and "of 200" in score and len(rows_of(runs.path("sides.csv"))) == 200, score


def learns_texts(runs):
    """Words are classes: a test set and a file to predict that lack one of them have the numbers of training."""
    def table(name, lines):
        with open(runs.path(name), "w") as file:
            file.write("".join(line + "\n" for line in lines))
        return runs.path(name)

    words = {"ant": "aaaa", "cat": "cccc", "dog": "dddd"}
    labelled = table("texts.csv", ["kind,words"] + [f"{kind},{words[kind]}" for kind in list(words) * 20])
    later = table("later.csv", ["kind,words"] + [f"{kind},{words[kind]}" for kind in ("dog", "cat") * 5])
    bare = table("bare_texts.csv", ["words", "dddd", "cccc", "aaaa"])
    runs.train("texts", **{"model": "transformer(d=16, heads=2, layers=1)", "data.train": f"csv_text(file={labelled}, context=4)", "data.test": f"csv_text(file={later}, context=4)",
                           "data.batch": 10, "epochs": 20, "optimizer": "adam(lr=0.02)"})
    tested = [m["test_accuracy"] for m in runs.metrics("texts") if "test_accuracy" in m]
    assert tested[-1] == 1, tested
    score = runs.call([runs.cohort, "predict", runs.path("texts"), later, "--out", runs.path("later_out.csv")]).stdout
    assert "accuracy 100" in score and "of 10" in score, score
    assert [row["prediction"] for row in rows_of(runs.path("later_out.csv"))] == ["dog", "cat"] * 5
    done = runs.call([runs.cohort, "predict", runs.path("texts"), bare])
    assert [row["prediction"] for row in csv.DictReader(done.stdout.splitlines())] == ["dog", "cat", "ant"], done.stdout


def refuses_damage(runs, checkpoint, files):
    with open(checkpoint + "/model.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte[0] ^ 128]))
    assert "sha256" in runs.call([runs.cohort, "predict", checkpoint, files[0]], status=1).stderr


with tempfile.TemporaryDirectory(prefix="cohort-predict-") as scratch:
    runs = Runs(sys.argv[1], scratch)
    runs.train("run", **{"model": "mlp(in=784, hidden=32, out=10)", "data.train": "fashion_mnist", "data.test": "", "epochs": 0, "steps": 150})
    newest = runs.checkpoints("run")[-1]
    pictures = learns_the_same(runs, newest)
    refuses(runs, pictures)
    takes_folders(runs, pictures)
    learns_tables(runs)
    learns_texts(runs)
    refuses_damage(runs, newest, pictures)
