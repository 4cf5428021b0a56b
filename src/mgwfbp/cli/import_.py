"""mgwfbp import"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mgwfbp.cli.options import examples, option
from mgwfbp.errors import UserError
from mgwfbp.files import write_json
from mgwfbp.schedule import Workload, workload_to_dict
from mgwfbp.simulate import logs

# command -> the reader of a network's log, what is said of it in --help, an example
READERS: dict[str, tuple[Callable[..., dict[str, Any]], str, str]] = {
    "osu-log": (
        logs.osu_network,
        "An OSU all-reduce latency log (osu_allreduce, osu_iallreduce), of old and new versions.",
        "mgwfbp import osu-log allreduce8.log -o network.json",
    ),
    "nccl-log": (
        logs.nccl_network,
        "The output of nccl-tests' all_reduce_perf.",
        "mgwfbp import nccl-log all_reduce_perf.log -o network.json",
    ),
    "imb-log": (
        logs.imb_network,
        "The output of the Intel MPI Benchmarks (IMB-MPI1 Allreduce).",
        "mgwfbp import imb-log allreduce.txt --ranks 16 -o network.json",
    ),
}


@click.group("import", short_help="Turn public logs into WORKLOAD and NETWORK files.")
def command() -> None:
    """Turn public logs into WORKLOAD and NETWORK files."""


log_file = click.argument("log", metavar="FILE")
network_file = option("-o", "--output", required=True, metavar="NETWORK.json", help="Where to write the cost.")
which_ranks = option(
    "--ranks",
    type=click.IntRange(1),
    help="Only the rows of so many ranks; where the log does not say it, how many there were.  [default: all]",
)


@command.command("auto", **examples("mgwfbp import auto all_reduce_perf.log -o network.json"))
@log_file
@option("-o", "--output", required=True, metavar="OUT.json", help="Where to write the workload or the cost.")
@which_ranks
def auto(log: str, output: str, ranks: int | None) -> None:
    """A log of any of these kinds: finds out which, and does as that command."""
    text = logs.read_log(log)
    kind = logs.log_kind(text, log)
    click.echo(f"{log}: {kind.name}, read as by mgwfbp import {kind.command}")
    if kind.command in READERS:
        _write_network(output, READERS[kind.command][0](text, log, ranks=ranks))
    elif ranks is None:
        _write_workload(output, logs.bcaffe_workload(text, log))
    else:
        raise UserError(f"{log}: is a {kind.name}, its layers' times have no ranks; leave --ranks out")


@command.command("bcaffe-log", **examples("mgwfbp import bcaffe-log tmp8comm.log -o googlenet.json"))
@log_file
@option("-o", "--output", required=True, metavar="WORKLOAD.json", help="Where to write the workload.")
@option("--block", type=click.IntRange(1), help="Which block of tensors.  [default: the last that is not all zeros]")
@option("--forward-share", default=0.5, type=click.FloatRange(0), help="Forward time as a share of backward's.")
@option("--batch-size", default=64, type=click.IntRange(1), help="Samples a rank; the log does not say.")
def bcaffe(log: str, output: str, block: int | None, forward_share: float, batch_size: int) -> None:
    """A B-Caffe training log with its layer-wise backward times."""
    workload = logs.bcaffe_workload(
        logs.read_log(log), log, block=block, forward_share=forward_share, batch_size=batch_size
    )
    _write_workload(output, workload)


def _add(name: str) -> None:
    """The command of the reader `name`."""
    read, about, example = READERS[name]

    @command.command(name, help=about, **examples(example))
    @log_file
    @network_file
    @which_ranks
    def from_log(log: str, output: str, ranks: int | None) -> None:
        _write_network(output, read(logs.read_log(log), log, ranks=ranks))


for _name in READERS:
    _add(_name)


def _write_workload(output: str, workload: Workload) -> None:
    write_json(output, workload_to_dict(workload))
    click.echo(
        f"{output}: {len(workload.layers)} layers, {workload.nbytes / 1e6:.2f} MB of gradients, "
        f"backward {workload.backward_s * 1e3:.2f} ms ({workload.source})"
    )


def _write_network(output: str, found: dict[str, Any]) -> None:
    write_json(output, found)
    networks = found.get("networks", [found])
    for network in networks:
        known = f"{network['ranks']} ranks" if network["ranks"] else "ranks not known (--ranks N says them)"
        click.echo(
            f"{output}: {known}, {len(network['nbytes'])} sizes, {network['a_s'] * 1e6:.1f} µs a message + "
            f"{network['b_s_per_byte'] * 1e9:.3f} ns a byte, R² {network['r2']:.3f}"
        )
        smallest, least_s = network["nbytes"][0], network["seconds"][0]
        if smallest > logs.MOST_STARTUP_NBYTES:
            start_s = logs.startup_beyond(network["nbytes"], network["seconds"])
            click.echo(
                f"{output}: nothing below {smallest:,} bytes was measured; smaller messages are taken by the line, "
                f"from {start_s * 1e6:.1f} µs at 0 bytes to {least_s * 1e6:.1f} µs there"
            )
    if len(networks) > 1:
        ranks = networks[-1]["ranks"]
        click.echo(
            f"{output}: {len(networks)} networks; say which, as in --network {output}:{ranks}, or let simulate sweep"
        )
