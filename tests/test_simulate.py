"""Clusters on paper: against the published figures, an independent event-driven simulation, and a proof's claims."""

from __future__ import annotations

import heapq
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.estimated_workloads import SHIPPED, shipped_workload
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from mgwfbp.cli.reproduce import command as reproduce_command
from mgwfbp.cli.simulate import command as simulate_command
from mgwfbp.errors import UserError
from mgwfbp.schedule import POLICIES, AffineCost, LayerProfile, TableCost, Workload, make_schedule, predict
from mgwfbp.schedule.bound import lower_bound_s
from mgwfbp.simulate import plots
from mgwfbp.simulate.figures import read_shipped, shipped
from mgwfbp.simulate.gains import gain_map, parse_sweep
from mgwfbp.simulate.jitter import Jitter, jittered
from mgwfbp.simulate.reproduce import googlenet_sweep, measured_speedups
from mgwfbp.simulate.specs import cluster_from_spec, cost_from_spec, scaled, workload_from_spec
from mgwfbp.simulate.sweep import node_counts, plotted_counts, sweep

from .test_schedule import affine_costs, best_by_search, long_workloads, table_costs, workload

RING = "ring:alpha=45.25us,beta=0.9934107462565104ns,gamma=2.5ns"
GOOGLENET_MS = {  # nodes -> wfbp, single, mgwfbp, optimal as in figures/googlenet.independent.json
    4: (308.4, 488.4, 308.4, 308.4),
    8: (353.8, 518.7, 317.8, 317.7),
    64: (704.4, 550.1, 407.8, 368.0),
}


@pytest.mark.parametrize("network", ["k80-10gbe", RING])
def test_googlenet_by_the_authors_formulas(network):
    rows = sweep(workload_from_spec("k80-googlenet"), cluster_from_spec(network), list(GOOGLENET_MS), ())
    found = {(row.nodes, row.schedule): row for row in rows}
    for nodes, times in GOOGLENET_MS.items():
        for name, expected in zip(("wfbp", "single", "mgwfbp", "optimal"), times, strict=True):
            assert found[nodes, name].iteration_s * 1e3 == pytest.approx(expected, rel=1e-3), (nodes, name)
    at_64 = {name: found[64, name].iteration_s for name in ("wfbp", "single", "mgwfbp", "optimal")}
    gains = [at_64[other] / at_64[name] for name in ("mgwfbp", "optimal") for other in ("wfbp", "single")]
    assert gains == pytest.approx([1.73, 1.35, 1.91, 1.50], rel=0.004)
    row = found[64, "optimal"]
    assert row.speedup == pytest.approx(64 * 308.0 / 368.0, rel=1e-3)
    assert row.efficiency == pytest.approx(row.speedup / 64)


def event_driven(work, schedule, cost):
    """An independent simulation: a clock, a queue of events, a channel that is busy or free. Returns the end."""
    clock, events, sequence = 0.0, [], 0
    ready_layers, sent, busy, end = set(), 0, False, 0.0

    def at(time, kind, what):
        nonlocal sequence
        sequence += 1
        heapq.heappush(events, (time, sequence, kind, what))

    def start_next():
        nonlocal busy
        if busy or sent == len(schedule.buckets):
            return
        bucket = schedule.buckets[sent]
        members = range(bucket.first, bucket.last + 1)
        if all(layer in ready_layers for layer in members):
            busy = True
            at(clock + float(cost(sum(work.layers[layer].nbytes for layer in members))), "received", sent)

    at(work.forward_s, "backward", 0)
    while events:
        clock, _, kind, what = heapq.heappop(events)
        end = max(end, clock)
        if kind == "backward":
            at(clock + work.layers[what].backward_s, "ready", what)
        elif kind == "ready":
            ready_layers.add(what)
            if what + 1 < len(work.layers):
                at(clock, "backward", what + 1)
        else:
            sent, busy = sent + 1, False
        start_next()
    return end


@given(
    long_workloads(most=30),
    st.one_of(affine_costs, table_costs()),
    st.sampled_from(["wfbp", "single", "mgwfbp", "optimal", "bucket:3B", "bucket:100kB"]),
)
@settings(max_examples=160)
def test_predict_agrees_with_an_event_driven_simulation(work, cost, name):
    schedule = make_schedule(name, work, cost)
    assert predict(work, schedule, cost).iteration_s == pytest.approx(
        event_driven(work, schedule, cost), rel=1e-9, abs=1e-12
    )


@given(long_workloads(most=10), st.one_of(affine_costs, table_costs()))
@settings(max_examples=120)
def test_no_schedule_undercuts_the_bound(work, cost):
    best = work.forward_s + max(best_by_search(work, cost), work.backward_s)
    assert lower_bound_s(work, cost) <= best * (1 + 1e-9) + 1e-12


@given(long_workloads(most=8), st.one_of(affine_costs, table_costs()), st.integers(0, 2**32))
@settings(max_examples=120)
def test_nor_does_any_order_of_any_groups_of_layers(work, cost, seed):
    """The bound claims more than contiguous buckets in order: here groups of any layers, sent in any order."""
    rng = random.Random(seed)
    layers = list(range(len(work.layers)))
    groups: dict[int, list[int]] = {}
    for layer in layers:
        groups.setdefault(rng.choice(layers), []).append(layer)
    order, ready, end = list(groups.values()), work.ready_s(), 0.0
    rng.shuffle(order)
    for group in order:
        end = max(end, max(ready[layer] for layer in group))
        end += float(cost(float(sum(work.layers[layer].nbytes for layer in group))))
    assert lower_bound_s(work, cost) <= work.forward_s + max(end, work.backward_s) * (1 + 1e-9) + 1e-12


def test_the_bound_is_reached_where_one_message_is_best():
    work, cost = workload([1, 0, 0], [5, 5, 5], 2.0), AffineCost(1, 0.1)
    assert lower_bound_s(work, cost) == pytest.approx(
        predict(work, make_schedule("optimal", work, cost), cost).iteration_s
    )


def test_node_counts_come_from_the_option_or_the_network():
    assert node_counts("4,8, 16", cluster_from_spec("k80-10gbe")) == [4, 8, 16]
    assert node_counts(None, cluster_from_spec("k80-10gbe:64")) == [64]
    assert node_counts(None, cluster_from_spec("v100-10gbe")) == [2, 4, 8, 16]
    assert node_counts("7", cluster_from_spec("a=1us,b=1ns")) == [7]
    for text, spec, says in [
        (None, "k80-10gbe", "say which, --nodes"),
        (None, "a=1us,b=1ns", "any number of ranks"),
        ("4", "k80-10gbe:64", "names 64 nodes already"),
        ("4", "v100-10gbe:16", "names 16 GPUs already"),
        ("4,,8", "k80-10gbe", "whole numbers"),
        ("0", "k80-10gbe", "whole numbers"),
        ("-4", "k80-10gbe", "whole numbers"),
    ]:
        with pytest.raises(UserError, match=says):
            node_counts(text, cluster_from_spec(spec))
    with pytest.raises(UserError, match="measured for 2, 4, 8, 16 GPUs only"):
        sweep(workload_from_spec("k80-googlenet"), cluster_from_spec("v100-10gbe"), [32])


def test_a_file_with_a_cost_for_each_node_count(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(
        '{"networks": [{"ranks": 2, "a_s": 1, "b_s_per_byte": 0}, {"ranks": 4, "nbytes": [1, 9], "seconds": [2, 3]}]}'
    )
    cluster = cluster_from_spec(str(path))
    assert cluster.known == (2, 4)
    assert cluster.cost(2) == AffineCost(1, 0)
    assert cluster.cost(4) == TableCost((1.0, 9.0), (2.0, 3.0))
    for content, says in [
        ('{"networks": []}', "must be a list"),
        ('{"networks": [3]}', "must be a list"),
        ('{"networks": [{"a_s": 1, "b_s_per_byte": 0}]}', 'network 0: "ranks" is missing'),
        ('{"networks": [{"ranks": 2, "a_s": -1, "b_s_per_byte": 0}]}', 'network 0: "a_s"'),
    ]:
        path.write_text(content)
        with pytest.raises(UserError, match=says):
            cluster_from_spec(str(path))


def test_scaling():
    work = workload([1, 2], [3, 4], 6.0)
    faster = scaled(work, compute_scale=4)
    assert (faster.forward_s, faster.backward_s, faster.nbytes) == (1.5, 0.75, 7)
    doubled = scaled(work, batch_size=2)
    assert (doubled.forward_s, doubled.backward_s, doubled.batch_size) == (12, 6, 2)
    for scale in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UserError, match="--compute-scale"):
            scaled(work, compute_scale=scale)


def test_no_noise_is_the_prediction_and_noise_only_delays():
    work, cost = workload_from_spec("k80-googlenet"), cost_from_spec("k80-10gbe:8")
    schedules = [make_schedule(name, work, cost) for name in POLICIES]
    quiet = [predict(work, schedule, cost).iteration_s for schedule in schedules]
    for (mean, low, high), expected in zip(jittered(work, cost, schedules, 8, Jitter(0.0, 3)), quiet, strict=True):
        assert (mean, low, high) == pytest.approx((expected,) * 3, rel=1e-5)
    noisy = jittered(work, cost, schedules, 8, Jitter(0.2, 200, seed=1))
    assert noisy == jittered(work, cost, schedules, 8, Jitter(0.2, 200, seed=1))
    assert noisy != jittered(work, cost, schedules, 8, Jitter(0.2, 200, seed=2))
    for (mean, low, high), expected in zip(noisy, quiet, strict=True):
        assert low < mean < high
        assert mean > expected


def test_jitter_is_the_largest_over_ranks_of_sums_of_noisy_times():
    """Against the definition, with the loops written out and the same draws."""
    work, cost = workload([0.5, 0.25, 1.0], [10, 0, 20], 2.0), AffineCost(0.1, 0.01)
    schedule = make_schedule("optimal", work, cost)
    draws = np.random.default_rng([5, 3]).standard_normal((4, 3, 7), np.float32)
    left = work.forward_left_s()
    forward = [2.0 - left[2], left[0], left[1] - left[0], left[2] - left[1]]
    ends = []
    for trial in draws:
        clocks = [[], [], []]
        for rank, noise in enumerate(trial):
            clock = 0.0
            for value, time in zip(noise, [*forward, 0.5, 0.25, 1.0], strict=True):
                clock += time * max(0.0, 1 + 0.3 * float(value))
                clocks[rank].append(clock)
        ready, end = [max(c[i] for c in clocks) for i in range(4, 7)], 0.0
        for bucket in schedule.buckets:
            nbytes = sum(work.layers[i].nbytes for i in range(bucket.first, bucket.last + 1))
            end = max(end, ready[bucket.last]) + cost(nbytes)
        ends.append(max(end, ready[-1]))
    ((mean, _, _),) = jittered(work, cost, [schedule], 3, Jitter(0.3, 4, seed=5))
    assert mean == pytest.approx(np.mean(ends), rel=1e-5)


def test_where_messages_cost_nothing_all_schedules_meet_the_same_noise():
    work, cost = workload_from_spec("k80-googlenet"), AffineCost(0.0, 0.0)
    schedules = [make_schedule(name, work, cost) for name in ("wfbp", "single", "optimal", "pipelined", "sharded")]
    *means, sharded = (mean for mean, _, _ in jittered(work, cost, schedules, 64, Jitter(0.1, 50)))
    assert means == pytest.approx([means[0]] * len(means), rel=1e-6)
    assert means[0] < sharded < 1.02 * means[0]  # its gathers wait for the last rank's backward


def test_gains_over_a_grid():
    a, b = parse_sweep("a=1us:1ms:4,b=1ns:10ns")
    assert a == pytest.approx([1e-6, 1e-5, 1e-4, 1e-3])
    assert len(b) == 25
    gains = gain_map(workload_from_spec("k80-googlenet"), a, b[-2:])
    assert len(gains) == 4
    assert all(gain >= 1 - 1e-12 for line in gains for gain in line)
    assert gains[-1][0] > gains[0][0]
    for text in ("a=1us:1ms", "a=1us,b=1ns:2ns", "a=1ms:1us,b=1ns:2ns", "a=0:1,b=1ns:2ns", "a=1us:1ms:1,b=1ns:2ns"):
        with pytest.raises(UserError, match="--sweep"):
            parse_sweep(text)


@pytest.mark.parametrize(("device", "model", "batch_size"), SHIPPED)
def test_shipped_estimates_are_those_of_the_estimator(device, model, batch_size):
    mine, theirs = read_shipped("workload", f"{device}-{model}"), shipped_workload(device, model, batch_size)
    assert mine.pop("forward_s") == pytest.approx(theirs.pop("forward_s"), abs=2e-9)
    for one, other in zip(mine.pop("layers"), theirs.pop("layers"), strict=True):
        assert one.pop("backward_s") == pytest.approx(other.pop("backward_s"), abs=2e-9)
        assert one == other
    assert mine == theirs
    assert mine["source"].startswith("estimate, not measured")


def test_every_shipped_file_names_its_source():
    for kind in ("workload", "network", "paper", "independent"):
        assert shipped(kind)
        for name in shipped(kind):
            assert len(read_shipped(kind, name)["source"]) > 20
    for name in shipped("workload"):
        workload_from_spec(name)
    with pytest.raises(UserError, match="did you mean 'k80-googlenet'"):
        workload_from_spec("k80-google")


def test_a_plot_has_five_node_counts():
    for spec, asked, expected in [
        ("k80-10gbe", [8, 64], [1, 2, 4, 8, 16, 32, 64]),
        ("k80-10gbe:64", [64], [1, 2, 4, 8, 16, 32, 64]),
        ("k80-10gbe", [6], [1, 2, 4, 6, 8]),
        ("k80-10gbe", [1], [1, 2, 4, 8, 16]),
        ("k80-10gbe", [96, 3, 5, 7, 9], [3, 5, 7, 9, 96]),
        ("a=1ms,b=1ns", [12, 12], [1, 2, 4, 8, 12]),
        ("v100-10gbe", [2, 4, 8, 16], [1, 2, 4, 8, 16]),
        ("v100-10gbe:16", [16], [1, 2, 4, 8, 16]),
        ("v100-10gbe", [2], [1, 2, 4, 8, 16]),
        ("k80-10gbe-osu", [8], [1, 2, 4, 8]),
    ]:
        assert plotted_counts(asked, cluster_from_spec(spec)) == expected, (spec, asked)


def plotted(monkeypatch, *arguments):
    """What simulate printed, and the axes that it would have saved."""
    axes = []
    monkeypatch.setattr(plots, "save", lambda figure, path: axes.append(figure.axes[0]))
    done = CliRunner().invoke(simulate_command, ["k80-googlenet", *arguments], catch_exceptions=False)
    return done, axes


def test_simulate_plots_more_node_counts_than_its_table_has(monkeypatch):
    pytest.importorskip("matplotlib")
    two = ("--schedule", "wfbp", "--schedule", "optimal", "--plot", "x.png")
    done, (axes,) = plotted(monkeypatch, "--network", "k80-10gbe", "--nodes", "64,8", *two)
    assert [line.split()[0] for line in done.stdout.splitlines() if "wfbp" in line] == ["64", "8"]
    assert done.stderr == ""
    optimal = next(line for line in axes.lines if line.get_label() == "optimal")
    assert list(optimal.get_xdata()) == [1, 2, 4, 8, 16, 32, 64]
    assert optimal.get_ydata()[0] == pytest.approx(1.0)
    assert optimal.get_ydata()[-1] == pytest.approx(53.57, abs=0.01)
    measured = {tuple(place) for marks in axes.collections for place in marks.get_offsets()}
    assert {(n, speedup) for name, n, speedup in measured_speedups() if name == "wfbp"} <= measured
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["", "2", "4", "8", "16", "32", "64"]  # "1" would touch "2"

    done, (axes, _) = plotted(monkeypatch, "--network", "v100-10gbe", *two, "--gantt", "y.png")
    assert (axes.get_xlabel(), axes.get_ylabel()[:22]) == ("GPUs", "speed-up over one GPU ")
    assert "from 8 on messages cross" in axes.figure.get_supxlabel()
    assert len(axes.collections) == 0  # what was measured on the K80 cluster is no mark for V100s

    done, _ = plotted(monkeypatch, "--network", "k80-10gbe-osu", *two)
    assert done.stderr == "plot x.png: 4 counts, not 5: k80-10gbe-osu is known for 2, 4, 8 only\n"


def test_without_matplotlib_the_table_is_printed_first(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    network = ["k80-googlenet", "--network", "k80-10gbe:8"]
    grid = ["k80-googlenet", "--sweep", "a=1us:1ms:2,b=1ns:2ns:2"]
    for command, arguments, says in [
        (simulate_command, [*network, "--plot", "x.png"], "317.8"),
        (simulate_command, [*network, "--gantt", "x.png"], "317.8"),
        (simulate_command, [*network, "--plot", "x.png", "--json"], '"speedup"'),
        (simulate_command, [*grid, "--plot", "x.png"], "over wfbp"),
        (reproduce_command, ["--out", str(tmp_path)], "report.md: 6 printed in the paper"),
    ]:
        done = CliRunner().invoke(command, arguments)
        assert isinstance(done.exception, UserError)
        assert "pip install matplotlib" in str(done.exception)
        assert "pip install matplotlib" in str(done.exception)
        assert says in done.output
    assert (tmp_path / "report.md").exists()


def test_plots_are_written_and_bad_names_refused(tmp_path):
    pytest.importorskip("matplotlib")
    work, cost = workload_from_spec("k80-googlenet"), cost_from_spec("k80-10gbe:64")
    figures = [
        plots.speedup_plot(googlenet_sweep((2, 64)), "t", [("wfbp", 2, 1.8)]),
        plots.speedup_plot(sweep(work, cluster_from_spec("k80-10gbe"), [4, 8], ["optimal"], Jitter(0.1, 5)), "t"),
        plots.gantt_chart(work, cost, ["wfbp", "bucket:1MB", "bucket:2MB"], "t"),
        plots.heat_map([1e-6, 1e-5], [1e-9, 1e-8, 1e-7], [[1, 2, 3], [4, 5, 6]], "t", "gain"),
    ]
    for number, figure in enumerate(figures):
        for axes in figure.axes[:1]:
            assert axes.get_xlabel()
            assert axes.get_title()
        plots.save(figure, str(tmp_path / f"{number}.png"))
        assert Path(tmp_path / f"{number}.png").stat().st_size > 5000
    for name, says in (("x.xyz", "no format"), ("x", "no format"), ("none/x.png", "cannot be written")):
        with pytest.raises(UserError, match=says):
            plots.save(figures[0], str(tmp_path / name))


def test_a_faster_device_is_faster_in_each_layers_forward_too():
    layers = (LayerProfile("a", 1, 100, 4.0, 2.0), LayerProfile("b", 1, 100, 2.0, 1.0))
    half = scaled(Workload("w", 8, 4.0, layers), compute_scale=2.0)
    assert half.forward_left_s() == [1.0, 1.5]
    assert [layer.forward_s for layer in half.layers] == [1.0, 0.5]
    assert half.forward_s == 2.0
