"""mgwfbp profile"""

from __future__ import annotations

import click

from mgwfbp.cli.options import argument, examples, option, plugin
from mgwfbp.cli.tables import counted, say
from mgwfbp.files import check_writable, write_json
from mgwfbp.schedule import Workload, workload_to_dict


@click.command(
    "profile",
    short_help="Measure or estimate a network's layer times: a WORKLOAD file.",
    **examples("""
        mgwfbp profile lenet -o lenet.json
        mpirun -n 4 mgwfbp profile resnet20 --batch-size 64 -o resnet20.json
        mgwfbp profile resnet50 --batch-size 32 --device-model k80 -o resnet50-k80.json
    """),
)
@argument("model")
@plugin
@option("-o", "--output", required=True, metavar="WORKLOAD.json", help="Where to write the workload.")
@option("--batch-size", default=32, type=click.IntRange(1), help="Samples a rank and iteration.")
@option("--iterations", default=10, type=click.IntRange(1), help="Iterations to take the median of; one more warms up.")
@option("--seed", default=1, type=click.IntRange(0, 2**63 - 1), help="Makes the weights and the images.")
@option("--threads", type=click.IntRange(1), help="BLAS threads a rank.  [default: cores ÷ ranks on this machine]")
@option("--device-model", metavar="NAME", help="Estimate for k80, p100, v100, h100 or FILE.toml instead of measuring.")
def command(
    model: str, output: str, batch_size: int, iterations: int, seed: int, threads: int | None, device_model: str | None
) -> None:
    """Measure the forward and layer-by-layer backward times of MODEL on synthetic images.

    Each layer's time is the median over the iterations and the largest over the ranks. With --device-model nothing is
    run: the times are estimated from each layer's operations and bytes, and the file says so.
    """
    check_writable(output)
    if device_model is not None:
        from mgwfbp.bench.roofline import estimate, load_device
        from mgwfbp.models import build

        _write(output, estimate(build(model), batch_size, load_device(device_model)))
        return
    from mgwfbp.bench.profile import profile
    from mgwfbp.comm import World

    world = World(command="profile")
    workload = profile(world, model, batch_size, iterations, seed, threads)
    with world.together():
        if world.rank == 0:
            _write(output, workload)


def _write(output: str, workload: Workload) -> None:
    write_json(output, workload_to_dict(workload))
    say(
        f"{output}: {workload.name}, batch {workload.batch_size}, {counted(len(workload.layers), 'layer')}, "
        f"forward {workload.forward_s * 1e3:.2f} ms, backward {workload.backward_s * 1e3:.2f} ms ({workload.source})"
    )
