"""Everything that needs a GPU, on one card, in a few minutes:  python benchmarks/gpu_check.py [--out FILE.json]

1. tests/gpu: each primitive of the cupy kernel set, layers, nets, streams, against NumPy
2. two ranks share the card (--share-gpu, staged) and train LeNet; the losses of 20 iterations against NumPy's
3. a training step of ResNet-50 (batch 64) and GoogLeNet (batch 64) beside PyTorch with cuDNN: float32, channels
   last, in turn, medians and quartiles of the ratio
4. what a message of two ranks costs when it is staged through pinned memory

Prints one table and writes JSON; exits with 1 if a check failed. What cannot be run says why.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mgwfbp.kernels import Kernels
from mgwfbp.kernels.gpu import load
from mgwfbp.models import build
from mgwfbp.net import fuse
from mgwfbp.net.layers import Step
from mgwfbp.optim.sgd import SGD

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
NETS = (("resnet50", 64), ("googlenet", 64))
ROUNDS = 9
Row = dict[str, Any]


def tests() -> Row:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/gpu"], cwd=ROOT, capture_output=True, text=True, timeout=180
    )
    last = (done.stdout.strip().splitlines() or [done.stderr])[-1]
    return {"check": "tests/gpu", "ok": done.returncode == 0 and "passed" in last, "result": last}


def losses() -> Row:
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        for kernels in ("cupy", "numpy"):
            out = Path(name, kernels)
            command = [BIN / "mpirun", "-n", "2", BIN / "mgwfbp", "train", "lenet", "--data", "synthetic:28x28x1x10"]
            command += ["--iterations", "20", "--lr", "0.005", "--kernels", kernels, "--share-gpu", "--out", out]
            options = ["--transport", "staged"] if kernels == "cupy" else []
            done = subprocess.run(list(map(str, [*command, *options])), capture_output=True, text=True, timeout=120)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["?"])[-1]
                return {"check": "losses of two ranks", "ok": False, "result": f"{kernels}: {last}"}
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            found[kernels] = [line["loss"] for line in lines if "iteration" in line]
    worst = max(abs(a - b) for a, b in zip(found["cupy"], found["numpy"], strict=True))
    return {
        "check": "losses of two ranks",
        "ok": worst < 1e-3,
        "result": f"largest difference from NumPy's {worst:.1e}",
    }


def steps(model: str, batch: int) -> Row:
    name = f"step of {model}, batch {batch}"
    ours = our_step(model, batch)
    try:
        theirs = torch_step(model, batch)
    except (ImportError, RuntimeError) as error:
        theirs, why = None, str(error).splitlines()[0]
    times: list[tuple[float, float]] = []
    for number in range(ROUNDS + 3):  # the first build plans
        pair = timed(ours), timed(theirs) if theirs else float("nan")
        if number >= 3:
            times.append(pair)
    mine, other = np.median(times, axis=0) * 1e3
    if theirs is None:
        return {"check": name, "ok": True, "result": f"{mine:.1f} ms; no torch beside it ({why})", "ms": mine}
    ratios = [a / b for a, b in times]
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    text = f"{mine:.1f} ms, torch {other:.1f} ms, ratio {middle:.2f} ({low:.2f}–{high:.2f})"
    return {"check": name, "ok": middle <= 1.15, "result": text, "ms": mine, "torch_ms": other, "ratio": middle}


def timed(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def our_step(model: str, batch: int) -> Callable[[], None]:
    kernels = load.load("fp32")
    net = fuse(build(model)).allocate(seed=1, kernels=kernels)
    sgd = SGD(lr=0.01, momentum=0.9, weight_decay=1e-4).open(net.arena, kernels)
    rng = np.random.default_rng(0)
    images = kernels.xp.asarray(rng.normal(size=(batch, *net.input.shape)).astype(np.float32))
    labels = kernels.xp.asarray(rng.integers(0, net.classes, batch))

    def step() -> None:
        net.forward(images, labels, Step())
        net.backward()
        sgd.update([slice(0, len(net.arena.parameters))])
        kernels.xp.cuda.get_current_stream().synchronize()

    return step


def torch_step(model: str, batch: int) -> Callable[[], None]:
    import torch

    from mgwfbp.bench import torch_eager

    if not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} has no CUDA")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True

    net = build(model).allocate(seed=1, kernels=Kernels())
    parameters = {}
    for name, tensor in torch_eager.parameters(net).items():
        device = tensor.detach().cuda()
        if device.ndim == 4:
            device = device.to(memory_format=torch.channels_last)
        parameters[name] = device.requires_grad_()
    optimizer = torch.optim.SGD(parameters.values(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    height, width, channels = net.input.shape
    images = torch.randn(batch, channels, height, width, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, net.classes, (batch,), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch_eager.loss(net, parameters, images, labels).backward()
        optimizer.step()
        torch.cuda.synchronize()

    return step


def staged() -> Row:
    command = [str(BIN / "mpirun"), "-n", "2", str(BIN / "mgwfbp"), "bench", "allreduce", "--largest", "64MiB"]
    with tempfile.TemporaryDirectory() as name:
        out = Path(name, "network.json")
        environment = {**os.environ, "MGWFBP_SHARE_GPU": "1"}
        command += ["--transport", "staged", "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["?"])[-1]
            return {"check": "staged message", "ok": False, "result": last}
        network = json.loads(out.read_text())
    rate = network["nbytes"][-1] / network["seconds"][-1] / 1e9
    text = f"{network['a_s'] * 1e6:.0f} µs + {network['b_s_per_byte'] * 1e9:.3f} ns a byte; 64 MiB at {rate:.1f} GB/s"
    return {"check": "staged message, two ranks", "ok": True, "result": text, "network": network}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="gpu_check.json", help="where the JSON goes")
    arguments = parser.parse_args()
    if why := load.why_not():
        print(f"skipped: {why}")
        return
    import cupy

    card = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{card}, CuPy {cupy.__version__}, driver {cupy.cuda.runtime.driverGetVersion()}", flush=True)
    checks: list[Callable[[], Row]] = [tests, losses, staged]
    checks += [lambda model=model, batch=batch: steps(model, batch) for model, batch in NETS]
    rows = []
    for check in checks:
        start = time.perf_counter()
        try:
            row = check()
        except Exception as error:  # one check that breaks must not hide what the others find
            row = {"check": getattr(check, "__name__", "check"), "ok": False, "result": repr(error)[:200]}
        rows.append({**row, "took_s": time.perf_counter() - start})
        print(f"{'ok' if row['ok'] else 'FAILED':<7} {row['check']:<28} {row['result']}", flush=True)
        Path(arguments.out).write_text(json.dumps({"card": card, "rows": rows}, indent=1))
    sys.exit(not all(row["ok"] for row in rows))


if __name__ == "__main__":
    main()
