"""mgwfbp import"""

from __future__ import annotations

from typing import Any

import click

from mgwfbp.cli.options import examples, option
from mgwfbp.files import write_json
from mgwfbp.schedule import workload_to_dict
from mgwfbp.simulate.logs import bcaffe_workload, nccl_network, osu_network, read_log


@click.group("import", short_help="Turn public logs into WORKLOAD and NETWORK files.")
def command() -> None:
    """Turn public logs into WORKLOAD and NETWORK files."""


@command.command("bcaffe-log", **examples("mgwfbp import bcaffe-log tmp8comm.log -o googlenet.json"))
@click.argument("log", metavar="FILE")
@option("-o", "--output", required=True, metavar="WORKLOAD.json", help="Where to write the workload.")
@option("--block", type=click.IntRange(1), help="Which block of tensors.  [default: the last that is not all zeros]")
@option("--forward-share", default=0.5, type=click.FloatRange(0), help="Forward time as a share of backward's.")
@option("--batch-size", default=64, type=click.IntRange(1), help="Samples a rank; the log does not say.")
def bcaffe(log: str, output: str, block: int | None, forward_share: float, batch_size: int) -> None:
    """A B-Caffe training log with its layer-wise backward times."""
    workload = bcaffe_workload(read_log(log), log, block=block, forward_share=forward_share, batch_size=batch_size)
    write_json(output, workload_to_dict(workload))
    click.echo(
        f"{output}: {len(workload.layers)} layers, {workload.nbytes / 1e6:.2f} MB of gradients, "
        f"backward {workload.backward_s * 1e3:.2f} ms ({workload.source})"
    )


@command.command("osu-log", **examples("mgwfbp import osu-log allreduce8.log -o network.json"))
@click.argument("log", metavar="FILE")
@option("-o", "--output", required=True, metavar="NETWORK.json", help="Where to write the cost.")
@option("--ranks", type=click.IntRange(1), help="How many ranks, where the log does not say.")
def osu(log: str, output: str, ranks: int | None) -> None:
    """An OSU all-reduce latency log (osu_allreduce), of old and new versions."""
    _write(output, osu_network(read_log(log), log, ranks=ranks))


@command.command("nccl-log", **examples("mgwfbp import nccl-log all_reduce_perf.log -o network.json"))
@click.argument("log", metavar="FILE")
@option("-o", "--output", required=True, metavar="NETWORK.json", help="Where to write the cost.")
def nccl(log: str, output: str) -> None:
    """The output of nccl-tests' all_reduce_perf."""
    _write(output, nccl_network(read_log(log), log))


def _write(output: str, network: dict[str, Any]) -> None:
    write_json(output, network)
    ranks = f"{network['ranks']} ranks, " if network["ranks"] else ""
    click.echo(
        f"{output}: {ranks}{len(network['nbytes'])} sizes, {network['a_s'] * 1e6:.1f} µs a message + "
        f"{network['b_s_per_byte'] * 1e9:.3f} ns a byte, R² {network['r2']:.3f}"
    )
