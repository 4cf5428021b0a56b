"""mgwfbp bench"""

from __future__ import annotations

from typing import Any

import click

from mgwfbp.cli.measured import need_ranks, print_rows
from mgwfbp.cli.options import argument, examples, option, played_network, plugin, several_schedules
from mgwfbp.cli.tables import counted, print_table, say
from mgwfbp.errors import unknown_name
from mgwfbp.fields import bytes_from_text
from mgwfbp.files import check_writable, json_text, write_json
from mgwfbp.schedule import ALGORITHMS, WIRES, Network, compared, find_policy
from mgwfbp.simulate.specs import cost_from_spec


@click.group("bench", short_help="Measure what this machine and its network can do.")
def command() -> None:
    """Measure what this machine and its network can do."""


@command.command(
    "allreduce",
    **examples("""
        mpirun -n 4 mgwfbp bench allreduce -o network.json
        mpirun -n 2 mgwfbp bench allreduce --largest 256MiB --json
    """),
)
@plugin
@option("-o", "--output", metavar="NETWORK.json", help="Where to write the measured cost.")
@option("--largest", default="16MiB", metavar="SIZE", help="The largest message.")
@option("--transport", default="host", help="host, or of arrays on a GPU: auto, staged, device or device-blocking.")
@option("--algorithm", default="auto", type=click.Choice(ALGORITHMS), help="How messages are summed.")
@option("--wire", default="fp32", type=click.Choice(WIRES), help="What travels; auto: what is faster.")
@option("--json", "as_json", is_flag=True, help="Print JSON: what -o writes.")
def allreduce(output: str | None, largest: str, transport: str, algorithm: str, wire: str, as_json: bool) -> None:
    """Time the all-reduce that training uses, from 256 B to the largest message, on all ranks.

    Each algorithm is timed; the fastest at each size (*) is what training takes with --algorithm auto.
    """
    if output:
        check_writable(output)
    nbytes = bytes_from_text(largest, "--largest")
    from mgwfbp.comm import World, agree, open_transport, transport_names
    from mgwfbp.runs.start import load_kernels

    if transport not in transport_names():
        raise unknown_name("transport", transport, transport_names())
    world = World(command="bench")
    need_ranks(world, "bench allreduce")
    agree(world.comm, "options", [f"largest {nbytes}", f"transport {transport}"])
    kernels = load_kernels(world, "numpy" if transport == "host" else "cupy")
    _, _, network = open_transport(
        world, nbytes, None, halves=True, xp=kernels.xp, wanted=transport, algorithm=algorithm, wire=wire
    )
    with world.together():
        if world.rank == 0:
            if as_json:
                click.echo(json_text(network.to_dict(), indent=1))
            else:
                _print_network(network)
            if output:
                write_json(output, network.to_dict())
                click.echo(f"written to {output}", err=as_json)


def _print_network(network: Network) -> None:
    scatters, gathers = network.reduce_scatter_s or (), network.all_gather_s or ()
    ways = network.by_algorithm or {}
    rows = []
    for size, (nbytes, seconds, taken) in enumerate(
        zip(network.nbytes, network.seconds, network.algorithms or (), strict=True)
    ):
        times = {name: ways[name][size] for name in ways}
        each = [f"{s * 1e6:.1f}{'*' * (name == taken and len(ways) > 1)}" for name, s in times.items()]
        each = ["–" if cell == "inf" else cell for cell in each]  # it had lost before: measure_all_reduce
        halves = (f"{half[size] * 1e6:.1f}" for half in (scatters, gathers))
        rows.append((f"{nbytes:,}", *each, f"{nbytes / max(seconds, 1e-12) / 1e6:.0f}", *halves))
    print_table(("bytes", *(f"{name} µs" for name in ways), "MB/s", "reduce-scatter µs", "all-gather µs"), rows)
    a, b = network.a_s * 1e6, network.b_s_per_byte * 1e9
    say(f"{counted(network.ranks, 'rank')}: {a:.1f} µs a message + {b:.4f} ns a byte, R² {network.r2:.3f}")


@command.command(
    "schedules",
    **examples("""
        mpirun -n 2 mgwfbp bench schedules resnet20 --batch-size 32
        mpirun -n 2 mgwfbp bench schedules lenet --network a=2ms,b=10ns --schedule wfbp --schedule optimal
    """),
)
@argument("model")
@plugin
@option("--batch-size", default=32, type=click.IntRange(1), help="Samples a rank.")
@played_network
@several_schedules
@option("--rounds", default=9, type=click.IntRange(1), help="Iterations of each schedule, in turn.")
@option("--seed", default=1, type=click.IntRange(0, 2**63 - 1), help="Makes the weights and the images.")
@option("--threads", type=click.IntRange(1), help="BLAS threads a rank.  [default: cores ÷ ranks on this machine]")
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench_all(
    model: str,
    batch_size: int,
    network: str | None,
    schedules: tuple[str, ...],
    rounds: int,
    seed: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Train steps of MODEL under every schedule in turn, and compare with the prediction."""
    cost = cost_from_spec(network) if network else None
    for name in schedules:
        find_policy(name)
    from mgwfbp.bench.profile import SyntheticRun
    from mgwfbp.bench.schedules import bench_schedules
    from mgwfbp.comm import World, agree, open_transport
    from mgwfbp.kernels import threads as limit
    from mgwfbp.models import build
    from mgwfbp.runs.start import load_kernels

    build(model)  # a mistake in its name is the first to mend
    world = World(command="bench")
    if cost is None:
        need_ranks(world, "bench schedules MODEL, or play a network: --network SPEC")
    agree(world.comm, "options", [f"rounds {rounds}", str(cost)])
    kernels = load_kernels(world, None)
    with limit(threads or world.threads):
        run = SyntheticRun(world, model, batch_size, seed, kernels)
        transport, cost, measured = open_transport(
            world, run.net.arena.gradients.nbytes, cost, halves=True, xp=kernels.xp
        )
        result = bench_schedules(run, cost, schedules or compared(), rounds, transport, measured)
    if world.rank == 0 and as_json:
        click.echo(json_text({**result, "network": network}, indent=1))
    elif world.rank == 0:
        where, turns = network or "this machine's network", f"{counted(rounds, 'round')} in turn"
        say(f"{model}, batch {batch_size} a rank, {counted(world.size, 'rank')}, {where}, {turns}")
        print_rows(result["rows"])
        for line in said(result):
            say(line)


def said(result: dict[str, Any]) -> list[str]:
    """What the `result` of bench schedules says of the predicted order, in lines."""
    lines = [f"{fast} was faster than {slow}, which was predicted to be faster" for fast, slow in result["surprises"]]
    pairs, judged, agree = (result[key] for key in ("pairs", "pairs_judged", "pairs_agree"))
    if judged:
        lines.append(f"{agree} of {counted(judged, 'pair')} predicted to differ by more than 2 % came in that order")
    if judged < pairs:
        lines.append(f"{counted(pairs - judged, 'pair')} of schedules predicted to be equal within 2 %: not judged")
    return lines


@command.command(
    "step",
    **examples("""
        mgwfbp bench step resnet20 --batch-size 64 --against torch
        mgwfbp bench step resnet50 --batch-size 4 --threads 2 --json
    """),
)
@argument("model")
@plugin
@option("--batch-size", default=32, type=click.IntRange(1), help="Samples in a step.")
@option("--threads", default=1, type=click.IntRange(1), help="Threads of BLAS, OpenMP and numba.")
@option("--rounds", default=9, type=click.IntRange(1), help="Steps to take the median of.")
@option("--against", type=click.Choice(["torch"]), help="PyTorch eager on the same net, in both of its layouts.")
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def step(model: str, batch_size: int, threads: int, rounds: int, against: str | None, as_json: bool) -> None:
    """Time a training step of MODEL on each kernel set: forward, backward, update, memory."""
    from mgwfbp.bench.step import bench_step

    sides = ["fast", "numpy"] + (["torch-nchw", "torch-nhwc"] if against else [])
    result = bench_step(model, batch_size, threads, rounds, sides)
    if as_json:
        click.echo(json_text(result, indent=1))
        return
    turns = f"medians of {counted(rounds, 'round')}{' in turn' if rounds > 1 else ''}"
    say(f"{model}, batch {batch_size}, {counted(threads, 'thread')}, {turns}")
    heads = ["", "forward", "backward", "update", "step ms", "images/s", "peak MB"]
    heads += [f"ratio to {result['against']}", "(quartiles)"] if against else []
    rows = []
    for row in result["rows"]:
        times = [f"{row[key] * 1e3:.1f}" for key in ("forward_s", "backward_s", "update_s", "step_s")]
        rows.append([row["side"], *times, f"{row['images_per_s']:.1f}", f"{row['peak_nbytes'] / 1e6:.0f}"])
        if against:
            rows[-1] += [f"{row['ratio']:.2f}", f"{row['ratio_low']:.2f}–{row['ratio_high']:.2f}"]
    print_table(heads, rows, left=("",))
