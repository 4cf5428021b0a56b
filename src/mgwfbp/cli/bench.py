"""mgwfbp bench"""

from __future__ import annotations

import click

from mgwfbp.cli.measured import print_rows
from mgwfbp.cli.options import examples, option, played_network, plugin, several_schedules
from mgwfbp.errors import unknown_name
from mgwfbp.fields import bytes_from_text
from mgwfbp.files import check_writable, json_text, write_json
from mgwfbp.schedule import compared
from mgwfbp.simulate.specs import cost_from_spec


@click.group("bench", short_help="Measure what this machine and its network can do.")
def command() -> None:
    """Measure what this machine and its network can do."""


@command.command(
    "allreduce",
    **examples("""
        mpirun -n 4 mgwfbp bench allreduce -o network.json
        mpirun -n 2 mgwfbp bench allreduce --largest 256MiB
    """),
)
@plugin
@option("-o", "--output", metavar="NETWORK.json", help="Where to write the measured cost.")
@option("--largest", default="16MiB", metavar="SIZE", help="The largest message.")
@option("--transport", default="host", help="host, or of arrays on a GPU: auto, staged, device or device-blocking.")
def allreduce(output: str | None, largest: str, transport: str) -> None:
    """Time the all-reduce that training uses, from 256 B to the largest message, on all ranks."""
    if output:
        check_writable(output)
    nbytes = bytes_from_text(largest, "--largest")
    from mgwfbp.comm import World, agree, open_transport, transport_names
    from mgwfbp.runs.start import load_kernels

    if transport not in transport_names():
        raise unknown_name("transport", transport, transport_names())
    world = World(command="bench")
    agree(world.comm, "options", [f"largest {nbytes}", f"transport {transport}"])
    kernels = load_kernels(world, "numpy" if transport == "host" else "cupy")
    _, _, network = open_transport(world, nbytes, None, halves=True, xp=kernels.xp, wanted=transport)
    with world.together():
        if world.rank == 0:
            click.echo(f"{'bytes':>12}  {'µs':>10}  {'MB/s':>8}  {'reduce-scatter':>14}  {'all-gather':>10}")
            scatters, gathers = network.reduce_scatter_s or (), network.all_gather_s or ()
            columns = (network.nbytes, network.seconds, scatters, gathers)
            for size, seconds, scatter, gather in zip(*columns, strict=True):
                rate = size / max(seconds, 1e-12) / 1e6
                click.echo(
                    f"{size:>12,}  {seconds * 1e6:>10.1f}  {rate:>8.0f}  {scatter * 1e6:>14.1f}  {gather * 1e6:>10.1f}"
                )
            a, b = network.a_s, network.b_s_per_byte
            click.echo(f"{world.size} ranks: {a * 1e6:.1f} µs a message + {b * 1e9:.4f} ns a byte, R² {network.r2:.3f}")
            if output:
                write_json(output, network.to_dict())
                click.echo(f"written to {output}")


@command.command(
    "schedules",
    **examples("""
        mpirun -n 2 mgwfbp bench schedules resnet20 --batch-size 32
        mpirun -n 2 mgwfbp bench schedules lenet --network a=2ms,b=10ns --schedule wfbp --schedule optimal
    """),
)
@click.argument("model")
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
    from mgwfbp.bench.profile import SyntheticRun
    from mgwfbp.bench.schedules import bench_schedules
    from mgwfbp.comm import World, agree, open_transport
    from mgwfbp.kernels import threads as limit
    from mgwfbp.runs.start import load_kernels

    world = World(command="bench")
    agree(world.comm, "options", [f"rounds {rounds}", str(cost)])
    kernels = load_kernels(world, None)
    with limit(threads or world.threads):
        run = SyntheticRun(world, model, batch_size, seed, kernels)
        transport, cost, measured = open_transport(
            world, run.net.arena.gradients.nbytes, cost, halves=True, xp=kernels.xp
        )
        result = bench_schedules(run, cost, schedules or compared(), rounds, transport, measured)
    if world.rank == 0 and as_json:
        click.echo(json_text(result, indent=1))
    elif world.rank == 0:
        click.echo(
            f"{model}, batch {batch_size} a rank, {world.size} ranks, {network or 'this machine’s network'}, "
            f"{rounds} rounds in turn"
        )
        print_rows(result["rows"])
        for fast, slow in result["surprises"]:
            click.echo(f"{fast} was faster than {slow}, which was predicted to be faster")
        if not result["surprises"]:
            click.echo("ranking as predicted (where predictions differ by more than 2 %)")


@command.command(
    "step",
    **examples("""
        mgwfbp bench step resnet20 --batch-size 64 --against torch
        mgwfbp bench step resnet50 --batch-size 4 --threads 2 --json
    """),
)
@click.argument("model")
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
    click.echo(f"{model}, batch {batch_size}, {threads} thread(s), medians of {rounds} rounds in turn")
    heads = ["", "forward", "backward", "update", "step ms", "images/s", "peak MB"]
    heads += [f"ratio to {result['against']}", "(quartiles)"] if against else []
    click.echo("".join(f"{head:>{11 if len(head) < 12 else 20}}" for head in heads))
    for row in result["rows"]:
        times = [f"{row[key] * 1e3:.1f}" for key in ("forward_s", "backward_s", "update_s", "step_s")]
        cells = [row["side"], *times, f"{row['images_per_s']:.1f}", f"{row['peak_nbytes'] / 1e6:.0f}"]
        line = "".join(f"{cell:>11}" for cell in cells)
        if against:
            line += f"{row['ratio']:>20.2f}  {row['ratio_low']:.2f}–{row['ratio_high']:.2f}"
        click.echo(line)
