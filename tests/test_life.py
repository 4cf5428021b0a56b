"""A student's whole path in an empty folder: train, stop, resume, extend, fine-tune, evaluate, predict, export, use."""

from __future__ import annotations

import json
import re
import signal
import subprocess

import numpy as np
import pytest

from mgwfbp.data import load
from tests.test_cli import MGWFBP, MPIRUN, needs_mpirun, run

Image = pytest.importorskip("PIL.Image", reason="Pillow, which reads photos, is not installed")
DATA = ["--data", "mnist5k"]


def accuracy(text):
    return float(re.search(r"accuracy +(0\.\d+|1\.0+)", text)[1])


def photo(path):
    """A digit as a phone would take it: large, grey paper, turned by its EXIF."""
    digit = 255 - load("mnist5k").val_images[700, ..., 0]
    large = Image.fromarray(digit).resize((560, 560)).rotate(90)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.eval(large, lambda value: 255 - value).convert("RGB").save(path, quality=90, exif=exif)


@pytest.mark.all
@needs_mpirun
def test_from_the_first_run_to_the_weights_in_torch(tmp_path):
    torch = pytest.importorskip("torch")

    def said(*command, code=0):
        done = run(*command, cwd=tmp_path, seconds=120)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    two = [MPIRUN, "-n", 2, MGWFBP]
    start = [str(word) for word in (*two, "train", "lenet", *DATA, "--epochs", 2, "--log-every", 5, "--out", "runs/a")]
    job = subprocess.Popen(start, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    next(line for line in job.stdout if "iteration  20/126" in line)
    job.send_signal(signal.SIGINT)
    assert "the checkpoint is written; go on with --resume" in job.communicate(timeout=60)[1]
    assert "resumed after iteration" in said(*two, "train", "--resume", "runs/a")
    assert "there is nothing to resume; ask for more than 2" in said(*two, "train", "--resume", "runs/a", code=2)
    longer = said(*two, "train", "--resume", "runs/a", "--epochs", 3)
    assert accuracy(longer.partition("run folder")[2]) > 0.95

    images, labels = load("mnist5k").train_images, load("mnist5k").train_labels % 2
    np.savez(tmp_path / "odd.npz", images=images[::4], labels=labels[::4], class_names=["even", "odd"])
    tune = ["--weights", "runs/a", "--replace-head", "--freeze", "conv*", "--data", "arrays:odd.npz", "--epochs", 2]
    assert "2 layers in" in said(*two, "train", "lenet", *tune, "--out", "runs/b")

    judged = json.loads(said(*two, "evaluate", "runs/a", "--json"))
    (tmp_path / "photos").mkdir()
    photo(tmp_path / "photos/seven.jpg")
    (found,) = json.loads(said(MGWFBP, "predict", "runs/a", "photos", "--json"))
    assert found["classes"][0]["class"] == "7"
    assert "photos/seven.jpg  odd" in said(MGWFBP, "predict", "runs/b", "photos")

    said(MGWFBP, "export", "runs/a", "-o", "a.safetensors")
    assert json.loads(said(MGWFBP, "evaluate", "a.safetensors", "--json"))["accuracy"] == judged["accuracy"]
    said(MGWFBP, "export", "runs/a", "--torch", "-o", "t.safetensors")
    from safetensors.torch import load_file, safe_open

    nn = torch.nn
    parts = {
        "conv1": nn.Conv2d(1, 20, 5), "pool1": nn.MaxPool2d(2), "conv2": nn.Conv2d(20, 50, 5), "pool2": nn.MaxPool2d(2),
        "flat": nn.Flatten(), "ip1": nn.Linear(800, 500), "relu1": nn.ReLU(), "ip2": nn.Linear(500, 10),
    }  # fmt: skip
    net = nn.Sequential()
    for name, part in parts.items():
        net.add_module(name, part)
    net.load_state_dict(load_file(tmp_path / "t.safetensors"))
    with safe_open(tmp_path / "t.safetensors", "np") as file:
        seen = json.loads(file.metadata()["input"])
    digits = load("mnist5k")
    x = (digits.val_images.astype(np.float32) - seen["mean"][0]) / seen["std"][0]
    with torch.no_grad():
        guessed = net(torch.from_numpy(x.transpose(0, 3, 1, 2).astype(np.float32))).argmax(1).numpy()
    assert (guessed == digits.val_labels).mean() == pytest.approx(judged["accuracy"], abs=1e-3)
