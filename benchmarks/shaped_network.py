"""All schedules, and PyTorch DDP beside them, on a real slow network on this one machine.

    sudo .venv/bin/python benchmarks/shaped_network.py [--rate 1gbit] [--ranks 2] [--repeats 3] [--out FILE.json]

Each rank has a network namespace of its own, and all messages cross shaped links (benchmarks/hosts.py). In each repeat
ours (`mgwfbp bench schedules`, the network measured first) and DDP over gloo (bucket sizes 1, 4, 25 and 100 MB) run one
after the other; one thread a rank, the same net and batch. Prints medians over the repeats, and of the ratios.
Without root, or without the tools, it says so and ends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from hosts import Hosts, missing

NETS = (("resnet20", 32, 9, 12), ("resnet50", 4, 3, 4))  # model, batch, our rounds, DDP's iterations
DDP_BUCKETS_MB = (1, 4, 25, 100)
HERE = Path(__file__).parent
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def ours(hosts: Hosts, model: str, batch: int, rounds: int) -> list[dict[str, Any]]:
    mgwfbp = str(Path(sys.executable).parent / "mgwfbp")
    command = [mgwfbp, "bench", "schedules", model, "--batch-size", str(batch), "--rounds", str(rounds)]
    done = subprocess.run(
        hosts.mpirun(*command, "--threads", "1", "--json"), stdout=subprocess.PIPE, text=True, timeout=900, check=True
    )
    return json.loads(done.stdout)["rows"]


def ddp(hosts: Hosts, model: str, batch: int, iterations: int, bucket_mb: float, port: int) -> float:
    worker = [sys.executable, str(HERE / "ddp_worker.py"), model, str(batch), str(iterations), str(bucket_mb)]
    ranks = hosts.each(*worker, MASTER_PORT=str(port), **ONE_THREAD)
    outputs = [rank.communicate(timeout=900)[0] for rank in ranks]
    return median(json.loads(outputs[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", default="resnet20,resnet50")
    parser.add_argument("--no-ddp", action="store_true")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if why := missing():
        print(f"skipped: a shaped network {why}")
        return
    results = []
    with Hosts(arguments.ranks, arguments.rate) as hosts:
        for model, batch, rounds, iterations in NETS:
            if model not in arguments.models.split(","):
                continue
            repeats = []
            for number in range(arguments.repeats):
                rows = {row["schedule"]: row for row in ours(hosts, model, batch, rounds)}
                theirs = {}
                for place, size in enumerate(() if arguments.no_ddp else DDP_BUCKETS_MB):
                    port = 29500 + number * len(DDP_BUCKETS_MB) + place
                    theirs[size] = ddp(hosts, model, batch, iterations, size, port)
                repeats.append({"rows": rows, "ddp": theirs})
            results.append({"model": model, "batch_size": batch, "repeats": repeats})
            report(arguments, model, batch, repeats)
    if arguments.out:
        Path(arguments.out).write_text(json.dumps({"rate": arguments.rate, "results": results}, indent=1))


def report(arguments: argparse.Namespace, model: str, batch: int, repeats: list[dict[str, Any]]) -> None:
    print(f"{model}, batch {batch} a rank, {arguments.ranks} ranks at {arguments.rate}, {len(repeats)} repeats")
    print(f"  {'schedule':<14}{'buckets':>8}{'predicted ms':>14}{'measured ms':>13}{'ratio':>7}{'to optimal':>12}")
    for name in repeats[0]["rows"]:
        rows = [repeat["rows"][name] for repeat in repeats]
        over = median(
            repeat["rows"][name]["measured_iteration_s"] / repeat["rows"]["optimal"]["measured_iteration_s"]
            for repeat in repeats
        )
        figures = [
            median(row[key] for row in rows) for key in ("predicted_iteration_s", "measured_iteration_s", "ratio")
        ]
        print(
            f"  {name:<14}{rows[0]['buckets']:>8}{figures[0] * 1e3:>14.1f}{figures[1] * 1e3:>13.1f}"
            f"{figures[2]:>7.3f}{over:>12.3f}"
        )
    for size in repeats[0]["ddp"]:
        seconds = median(repeat["ddp"][size] for repeat in repeats)
        over = median(repeat["ddp"][size] / repeat["rows"]["optimal"]["measured_iteration_s"] for repeat in repeats)
        print(f"  {f'DDP {size} MB':<36}{seconds * 1e3:>13.1f}{'':>7}{over:>12.3f}")
    if repeats[0]["ddp"]:
        best = median(
            repeat["rows"]["optimal"]["measured_iteration_s"] / min(repeat["ddp"].values()) for repeat in repeats
        )
        print(f"  optimal takes {best:.2f} of DDP's best", flush=True)


if __name__ == "__main__":
    main()
