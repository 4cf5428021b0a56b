"""Long checks by hand, too long for `make test`:  python -m tests.soak [--starts 100] [--kills 20]

--starts  so many start-train-exit runs of two ranks in a row; each must exit with 0
--kills   so many runs of two ranks are killed with SIGKILL while they write checkpoints; each is resumed, and must end
          with the weights of a run that was never broken
Prints a line a failure and the counts; exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
TRAIN = [str(BIN / "mpirun"), "-n", "2", str(BIN / "mgwfbp"), "train", "--threads", "1", "--lr", "0.005"]
TRAIN += ["--profile-iterations", "2", "--replan", "never", "--batch-size", "4"]


def train(*options: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([*TRAIN, *options], stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def starts(folder: Path, count: int) -> int:
    """How many of `count` runs in a row did not exit with 0 within a minute."""
    failed = 0
    for number in range(count):
        run = train("mlp", "--data", "synthetic:28x28x1x10", "--iterations", "4", "--out", str(folder / f"run{number}"))
        _, errors = run.communicate(timeout=60)
        if run.returncode:
            failed += 1
            print(f"start {number}: exit code {run.returncode}: {errors[-300:]}")
    print(f"{count - failed} of {count} starts exited with 0", flush=True)
    return failed


def kills(folder: Path, count: int) -> int:
    """How many of `count` killed and resumed runs did not end with an unbroken run's weights."""
    options = ["lenet", "--data", "synthetic:28x28x1x10", "--iterations", "60", "--checkpoint-every", "1"]
    whole = train(*options, "--out", str(folder / "whole"))
    print(whole.communicate(timeout=120)[1], end="")
    wanted = weights(folder / "whole")
    rng, failed, during, from_start = random.Random(1), 0, 0, 0
    for number in range(count):
        place = folder / f"killed{number}"
        run = train(*options, "--out", str(place))
        wait_for_checkpoint(place, rng.randint(1, 40))
        time.sleep(rng.uniform(0, 0.03))
        os.killpg(run.pid, signal.SIGKILL)  # launcher and ranks at once, as when a node dies
        run.communicate(timeout=60)
        time.sleep(0.2)
        during += any((place / "checkpoints").glob(".iteration-*"))  # one was half written
        resumed = train(*options, "--out", str(place), "--resume", "auto")
        output, errors = resumed.communicate(timeout=120)
        from_start += "resumed after" not in output
        if resumed.returncode or weights(place) != wanted:
            failed += 1
            print(f"kill {number}: exit code {resumed.returncode}: {errors[-300:]}")
    print(
        f"{count - failed} of {count} killed runs ended with the weights of an unbroken one; {during} were killed with "
        f"a checkpoint half written, {from_start} before the first was whole",
        flush=True,
    )
    return failed


def wait_for_checkpoint(run: Path, number: int) -> None:
    """Until checkpoint `number` of the run is there, or beyond; 60 s at most."""
    for _ in range(30000):
        if any(int(path.name[-8:]) >= number for path in (run / "checkpoints").glob("iteration-*")):
            return
        time.sleep(0.002)
    raise TimeoutError(f"{run}: no checkpoint {number}")


def weights(run: Path) -> list[str] | None:
    try:
        return json.loads((run / "summary.json").read_text())["parameters_sha256"]
    except FileNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        failed = kills(Path(name), arguments.kills) if arguments.kills else 0
        failed += starts(Path(name), arguments.starts) if arguments.starts else 0
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
