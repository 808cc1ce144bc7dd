#!/usr/bin/env python3
"""Claims about the jobs of docs/jobs/: check.py <folder of programs> <source folder> <job>. Exit status 0 when the claim holds.

Each takes the job's own file in configs/, with fewer samples or steps."""
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train"))
from runs import LIMIT, Runs  # noqa: E402

FASHION = "/usr/share/datasets/fashion-mnist"
QUICK = {"observe__tensorboard": "false", "observe__report": "false", "checkpoint__every_epochs": 0, "checkpoint__every_steps": 0}
DAYS = "monday tuesday wednesday thursday friday saturday sunday " * 200
LETTERS = "abcdefghijklmnopqrstuvwxyz. " * 200
HEADLINES = ["Cat finds home after storm", "Dog finds bone in garden", "Storm hits north coast", "Mayor opens new bridge in Leeds",
             "New bridge closed after storm"]


class Jobs(Runs):
    def __init__(self, programs, source, folder):
        super().__init__(programs, folder)
        self.source = source

    def job(self, name, n=2, status=0, run=None, **sets):
        """The run of configs/NAME.yaml."""
        return self.train(run or name, n=n, status=status, file=f"{self.source}/configs/{name}.yaml", **{**QUICK, **sets})

    def tested(self, run, metric):
        return [line[metric] for line in self.metrics(run) if metric in line][-1]

    def generate(self, run, *words, status=0):
        return self.call([self.cohort, "generate", self.path(run), *words], status)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as file:
            file.write(text)

    def weights(self, run):
        """What was learned: lists of float32 by name."""
        with open(self.checkpoints(run)[-1] + "/model.safetensors", "rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            header, body = json.loads(file.read(length)), file.read()
        header.pop("__metadata__", None)
        return {name: struct.unpack(f"<{(e['data_offsets'][1] - e['data_offsets'][0]) // 4}f", body[slice(*e["data_offsets"])]) for name, e in header.items()}


def mnist_mlp(jobs):
    """The network and its RMSprop learn; Fashion-MNIST's files stand where MNIST's would."""
    os.makedirs(jobs.path("data"))
    os.symlink(FASHION, jobs.path("data/mnist"))
    jobs.job("mnist_mlp", epochs=0, steps=400)
    assert jobs.tested("mnist_mlp", "test_accuracy") > 0.75, jobs.tested("mnist_mlp", "test_accuracy")


def fashion_horovod(jobs):
    """Two ranks learn what one with twice the batch does: statistics of batch norm over both, the rate the same."""
    same = {"model": "wide_resnet(depth=10, width=1)", "sync_batch_norm": "true", "epochs": 0, "steps": 6, "data__test": "", "observe__every_steps": 1,
            "optim__schedule": 'multi_step(milestones="0.375, 0.625, 0.875", gamma=0.1)', "data__train": "fashion_mnist(split=test)"}
    jobs.job("fashion_horovod", n=1, run="one", data__batch=64, **same)
    jobs.job("fashion_horovod", n=2, run="two", data__batch=32, **same)
    one, two = jobs.losses("one"), jobs.losses("two")
    assert len(one) == 6 and one[0][1] > 1.5, one
    for (step, a), (_, b) in zip(one, two, strict=True):
        assert abs(a - b) < 1e-3 * a, f"step {step}: {a} and {b}"


def asl(jobs):
    """A table of letters and pixels to a letter for a picture's file."""
    subprocess.run([sys.executable, f"{jobs.source}/tools/jobs/data.py", "signs", "--samples", "1440", "--into", jobs.path("data")], check=True, timeout=LIMIT)
    jobs.job("asl", epochs=5)
    accuracy = jobs.tested("asl", "test_accuracy")
    assert accuracy > 0.5, accuracy  # chance is 0.042
    letters = "ABCDEFGHIKLMNOPQRSTUVWXY"
    files = [jobs.path(f"data/signs/{letter}.png") for letter in letters]
    lines = jobs.call([jobs.cohort, "predict", jobs.path("asl"), *files, "--top", "1", "--json"]).stdout.splitlines()
    guesses = [json.loads(line)["guesses"][0]["name"] for line in lines]
    assert set(guesses) <= set(letters) and sum(a == b for a, b in zip(guesses, letters, strict=True)) >= 8, guesses


def regression(jobs):
    """Gradient descent finds slope and intercept + slope * mean of the noise, and diverges above 2 / the largest eigenvalue, 68.2."""
    jobs.job("regression", n=1)
    learned = jobs.weights("regression")
    slope, intercept = learned["head.weight"][0], learned["head.bias"][0]
    assert abs(slope - 2) < 5 * 0.022 and abs(intercept - 2) < 5 * 0.126, (slope, intercept)  # five standard deviations of the estimates
    assert abs(jobs.tested("regression", "test_rmse") - 2) < 0.25, jobs.tested("regression", "test_rmse")  # slope * sd
    done = jobs.job("regression", n=1, run="wild", status=1, optimizer="sgd(lr=0.033)", steps=2000)
    assert "finite" in done.stdout + done.stderr, done.stdout + done.stderr


def autoencoder(jobs):
    """784 pixels come back from 30 numbers nearer than the mean picture is."""
    jobs.job("autoencoder", data__train="reconstruct(of=fashion_mnist, samples=6400)", data__test="reconstruct(of=fashion_mnist(split=test), samples=500)",
             epochs=2)
    assert jobs.tested("autoencoder", "test_rmse") < 0.22, jobs.tested("autoencoder", "test_rmse")  # the mean picture: 0.29


def gpt(jobs):
    """What comes after what, by byte pairs, characters and bytes; the same seed writes the same text."""
    for tokens, text, begin, then in (("bpe", DAYS, "monday tuesday", " wednesday thursday"), ("characters", LETTERS, "abcd", "efghij"), ("bytes", LETTERS, "abcd", "efghij")):
        jobs.write("data/news/articles.txt", text)
        data = f"text(file=data/news/articles.txt, tokens={tokens}, vocab=320, context=32"
        jobs.job("gpt", run=tokens, model="gpt(d=48, heads=2, layers=1, context=32)", steps=150, data__train=data + ", to=0.8)", data__test=data + ", from=0.8)",
                 optimizer="adamw(lr=4e-3)", optim__schedule="constant")
        text = jobs.generate(tokens, "--prompt", begin, "--tokens", "2" if tokens == "bpe" else "6", "--temperature", "0").stdout.rstrip("\n")
        assert text == begin + then, (tokens, text)
    wild = ("bpe", "--prompt", "monday", "--tokens", "30", "--temperature", "2", "--top-k", "50", "--top-p", "0.95")
    texts = [jobs.generate(*wild, "--seed", seed).stdout for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2], texts
    several = [json.loads(line)["text"] for line in jobs.generate(*wild, "--texts", "3", "--json").stdout.splitlines()]
    assert len(set(several)) == 3 and several[0] + "\n" == texts[0], several
    refused = jobs.generate("characters", "--prompt", "Zebra", status=2).stderr
    assert "the character 'Z'" in refused, refused
    assert "temperature" in jobs.generate("bpe", "--prompt", "a", "--temperature", "-1", status=2).stderr


def headlines(jobs):
    """Headlines by heart, from their first words."""
    jobs.write("data/news/headlines.txt", "\n".join(HEADLINES) + "\n")
    jobs.job("headlines", model="lstm(embed=10, hidden=48, layers=1, predict=last)", epochs=100, optimizer="adam(lr=2e-2)", data__batch=4)
    for line in HEADLINES[:4]:
        words = line.lower().split()
        text = jobs.generate("headlines", "--prompt", " ".join(words[:2]), "--tokens", str(len(words) - 2), "--temperature", "0").stdout.strip()
        assert text == line.lower(), (text, line)
    assert "no token that the model knows" in jobs.generate("headlines", "--prompt", "zebra", status=2).stderr


TINY_BERT = "bert(d=32, heads=2, layers=2, dropout=0"
PLACES = ["on the mat", "in a house", "inside"]


def bert(jobs, name, suffix, train, test, data, model="", **sets):
    """The job on tables of this test and golden's words, from drawn first values."""
    jobs.write(f"data/bert/{suffix.replace('*', 'train')}", train)
    jobs.write(f"data/bert/{suffix.replace('*', 'test')}", test)
    spec = lambda split: f"wordpiece(file=data/bert/{suffix.replace('*', split)}, vocab={jobs.source}/tests/jobs/bert_golden/vocab.txt, {data}, length=16)"
    jobs.job(name, data__train=spec("train"), data__test=spec("test"), model=TINY_BERT + model + ")", pretrained="", optimizer="adamw(lr=2e-3)",
             optim__schedule="constant", **{"epochs": 12, **sets})


def bert_pair(jobs):
    """Probabilities from a file of weights are those of the library that wrote it, to 1e-5; and a tiny BERT learns what
    only the second text of a pair says."""
    golden = f"{jobs.source}/tests/jobs/bert_golden"
    data = f"wordpiece(file={golden}/train.csv, vocab={golden}/vocab.txt, text=first, second=second, label=kind, length=16)"
    jobs.job("bert_pair", run="golden", n=1, model="bert(d=16, heads=2, layers=2, wide=32, context=16)", pretrained=f"{golden}/model.safetensors",
             data__train=data, data__test="", epochs=0, steps=1, optimizer="sgd(lr=1e-12)", optim__schedule="constant")
    lines = jobs.call([jobs.cohort, "predict", jobs.path("golden"), f"{golden}/pairs.csv", "--json"]).stdout.splitlines()
    with open(f"{golden}/expected.json") as file:
        expected = json.load(file)
    assert len(lines) == len(expected) == 4, lines
    for line, wanted in zip(map(json.loads, lines), expected):
        found = {guess["name"]: guess["probability"] for guess in line["guesses"]}
        for name, share in zip("abc", wanted["probabilities"], strict=True):
            assert abs(found[name] - share) < 1e-5, (wanted, found)
    rows = [f"the {one} {did},the {other} {did} {place},{other}\n"  # the class is the second text's: types and places tell which that is
            for one in ("cat", "dog") for other in ("cat", "dog") for did in ("sat", "ran") for place in PLACES]
    table = "title,text,kind\n" + "".join(rows) * 10
    bert(jobs, "bert_pair", "pair_*.csv", table, table, "text=title, second=text, label=kind", epochs=12)
    assert jobs.tested("bert_pair", "test_accuracy") > 0.8, jobs.tested("bert_pair", "test_accuracy")


def bert_single(jobs):
    """Classes of single texts, by words."""
    rows = [f"the {who} {did} {place},{who}\n" for who in ("cat", "dog", "house") for did in ("sat", "ran", "is") for place in PLACES]
    table = "title,outlet\n" + "".join(rows) * 10
    bert(jobs, "bert_single", "outlet_*.csv", table, table, "text=title, label=outlet", epochs=10)
    assert jobs.tested("bert_single", "test_accuracy") > 0.9, jobs.tested("bert_single", "test_accuracy")


def bert_tagging(jobs):
    """A class for each word."""
    tags = {"the": "D", "a": "D", "cats": "N", "dog": "N", "sat": "V", "ran": "V", "on": "P", "mat": "N"}
    lines = [" ".join(sentence) for sentence in (("the", "cats", "sat", "on", "a", "mat"), ("a", "dog", "ran"), ("the", "dog", "sat"))]
    text = "".join("".join(f"{word} {tags[word]}\n" for word in line.split()) + "\n" for line in lines) * 60
    bert(jobs, "bert_tagging", "tags_*.txt", text, text, "task=tag", ", task=tag, classes=4", epochs=6)
    assert jobs.tested("bert_tagging", "test_accuracy") > 0.95, jobs.tested("bert_tagging", "test_accuracy")


def bert_qa(jobs):
    """Where in a passage the answer starts and ends."""
    rows = [f"who {did}?,{before} {who} {did} {place},{who}\n" for before in ("the", "in the house a", "where is the") for who in ("cats", "dog")
            for did in ("sat", "ran") for place in PLACES]
    table = "title,text,word\n" + "".join(rows) * 10
    bert(jobs, "bert_qa", "word_*.csv", table, table, "task=answer, text=title, second=text, label=word", ", task=answer", epochs=8)
    assert jobs.tested("bert_qa", "test_accuracy") > 0.8, jobs.tested("bert_qa", "test_accuracy")


CLAIMS = [mnist_mlp, fashion_horovod, asl, regression, autoencoder, gpt, headlines, bert_pair, bert_single, bert_tagging, bert_qa]

if __name__ == "__main__":
    programs, source, claim = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        {one.__name__: one for one in CLAIMS}[claim](Jobs(programs, os.path.abspath(source), folder))
