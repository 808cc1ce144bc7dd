"""The examples run, and learn."""
import pathlib
import re

import pytest

from launch import launch

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


def accuracy(text):
    return float(re.findall(r"test accuracy ([0-9.]+)%", text)[-1])


@pytest.mark.parametrize("options", ([], *(pytest.param([o], marks=pytest.mark.long) for o in ("--fp16-allreduce", "--use-adasum"))), ids=lambda o: o[0][2:] if o else "plain")
def test_fashion_mnist_by_horovods_interface(options):
    done = launch(2, EXAMPLES / "hvd_fashion_mnist.py", "--epochs", 2, "--images", 2000, *options, timeout=120)
    assert done.returncode == 0, done.stderr
    assert accuracy(done.stdout) > 60  # ten classes, 2000 images


def test_fashion_mnist_alone():
    done = launch(1, EXAMPLES / "hvd_fashion_mnist.py", "--epochs", 1, "--images", 1000, timeout=120)
    assert done.returncode == 0 and accuracy(done.stdout) > 30, done.stderr


def test_elastic_training_sees_every_image_once_in_spite_of_a_failure():
    done = launch(2, EXAMPLES / "elastic_fashion_mnist.py", "--epochs", 2, "--images", 2560, "--fail-at", 13, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"(\d+) images seen", done.stdout) == ["2560", "2560"]
    assert sorted(re.findall(r"rank (\d) of 2 goes on from epoch 1, batch 10", done.stdout)) == ["0", "1"]
