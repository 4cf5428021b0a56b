"""mgwfbp replay"""

from __future__ import annotations

import click

from mgwfbp.cli.measured import need_ranks, print_rows
from mgwfbp.cli.options import argument, examples, option, played_network, plugin, several_schedules
from mgwfbp.cli.tables import counted, say
from mgwfbp.files import check_writable, json_text, write_json
from mgwfbp.schedule import compared, find_policy
from mgwfbp.simulate.specs import cost_from_spec, workload_from_spec


@click.command(
    "replay",
    short_help="Run a workload's messages for real, and compare with the prediction.",
    **examples("""
        mpirun -n 2 mgwfbp replay k80-googlenet --network k80-10gbe:64
        mpirun -n 4 mgwfbp replay workload.json --schedule optimal --schedule single --timeline timeline.json
    """),
)
@argument("workload", metavar="WORKLOAD")
@plugin
@played_network
@several_schedules
@option("--rounds", default=7, type=click.IntRange(1), help="Iterations of each schedule, in turn.")
@option("--timeline", metavar="FILE.json", help="Write the last round as a Chrome trace, planned beside measured.")
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    workload: str, network: str | None, schedules: tuple[str, ...], rounds: int, timeline: str | None, as_json: bool
) -> None:
    """Play WORKLOAD (a file, a run folder, or the shipped k80-googlenet) on all ranks under each schedule.

    Layers become waits of their measured length; gradients, comm thread and messages are real.
    """
    work = workload_from_spec(workload)
    if timeline:
        check_writable(timeline)
    cost = cost_from_spec(network) if network else None
    for name in schedules:
        find_policy(name)
    from mgwfbp.bench.replay import open_replay, replay
    from mgwfbp.comm import World, agree, open_transport

    world = World(command="replay")
    if cost is None:
        need_ranks(world, "replay WORKLOAD, or play a network: --network SPEC")
    agree(world.comm, "workload or options", [repr(work), str(cost), f"rounds {rounds}"])
    with world.together():
        work, arena = open_replay(work)
    transport, cost, _ = open_transport(world, arena.gradients.nbytes, cost, halves=True)
    rows, trace = replay(world, work, arena, cost, schedules or compared(), rounds, transport)
    with world.together():
        if world.rank == 0:
            if timeline and trace:
                write_json(timeline, trace)
            if as_json:
                click.echo(json_text({"workload": work.name, "network": network, "rows": rows}, indent=1))
            else:
                where = network or "this machine's network"
                turns = f"{counted(world.size, 'rank')}, {counted(rounds, 'round')} in turn"
                say(f"{work.name} on {where}, {turns}")
                print_rows(rows)
