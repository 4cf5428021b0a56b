"""The whole table of training steps beside PyTorch eager: every net that the project is measured by.

    python benchmarks/steps_against_torch.py [--threads 1] [--rounds 9] [--out steps.json]

Each net's sides are processes that step in turn (mgwfbp/bench/step.py); ratios are to torch's better layout.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mgwfbp.bench.step import bench_step

NETS = (("resnet20", 64), ("resnet50", 4), ("googlenet", 8), ("vgg16", 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", help="also write all figures here as JSON")
    arguments = parser.parse_args()
    results = []
    print(
        f"{'net':<12}{'batch':>6}{'side':>12}{'step ms':>10}{'ratio':>8}{'quartiles':>14}{'memory ratio':>14}",
        flush=True,
    )
    for model, batch in NETS:
        sides = (
            ["fast", "numpy", "torch-nchw", "torch-nhwc"]
            if model == "resnet20"
            else ["fast", "torch-nchw", "torch-nhwc"]
        )
        result = bench_step(model, batch, arguments.threads, arguments.rounds, sides)
        results.append(result)
        for row in result["rows"]:
            quartiles = f"{row['ratio_low']:.2f}–{row['ratio_high']:.2f}"
            print(
                f"{model:<12}{batch:>6}{row['side']:>12}{row['step_s'] * 1e3:>10.1f}{row['ratio']:>8.2f}"
                f"{quartiles:>14}{row['peak_ratio']:>14.2f}",
                flush=True,
            )
    if arguments.out:
        Path(arguments.out).write_text(json.dumps({"threads": arguments.threads, "results": results}, indent=1))


if __name__ == "__main__":
    main()
