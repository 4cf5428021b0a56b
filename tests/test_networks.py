"""Network SPECs of the command line, and the clusters of the paper."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from mgwfbp.cli.simulate import command as simulate
from mgwfbp.errors import UserError
from mgwfbp.schedule import AffineCost, TableCost
from mgwfbp.schedule.clusters import ALGORITHMS
from mgwfbp.simulate.specs import cluster_from_dict, cluster_from_spec, cost_from_dict, cost_from_spec


@pytest.mark.parametrize(
    ("spec", "a", "b"),
    [
        ("a=633.5us,b=3.92ns", 633.5e-6, 3.92e-9),
        ("b=0,a=1e-3", 1e-3, 0.0),
        ("a=2ms,b=5ps", 2e-3, 5e-12),
        ("ring:alpha=45.25us,beta=1ns,gamma=2.5ns,nodes=64", 126 * 45.25e-6, 126 / 64 * 1e-9 + 63 / 64 * 2.5e-9),
        ("k80-10gbe:8", 14 * 45.25e-6, 14 / 8 * 1.2 * 8 / (9 * 2**30) + 7 / 8 * 2.5e-9),
        ("v100-10gbe:16", 9.081e-4, 7.396e-10),
        ("v100-56gib:16", 2.358e-4, 4.059e-10),
        ("ring:alpha=1,beta=1,gamma=1,nodes=1", 0.0, 0.0),
    ],
)
def test_specs(spec, a, b):
    cost = cost_from_spec(spec)
    assert isinstance(cost, AffineCost)
    assert (cost.a, cost.b) == pytest.approx((a, b))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_node_pays_nothing_and_more_pay_more(name):
    one, two, many = (ALGORITHMS[name](nodes, 1e-5, 1e-9, 1e-10) for nodes in (1, 2, 64))
    assert one.a == 0
    assert one.b == pytest.approx(0)
    assert two.a <= many.a
    assert two.b <= many.b


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("k80-10gb:64", "did you mean 'k80-10gbe'"),
        ("rings:alpha=1", "did you mean 'ring'"),
        ("k80-10gbe", "number of nodes"),
        ("k80-10gbe:0", "number of nodes"),
        ("v100-10gbe", "number of GPUs"),
        ("v100-10gbe:some", "number of GPUs"),
        ("k80-10gbe:many", "number of nodes"),
        ("v100-10gbe:5", "measured for 2, 4, 8, 16 GPUs only"),
        ("a=1us", "b missing"),
        ("a=1us,b=1ns,a=2us", "a is given twice"),
        ("a=1us,c=1ns", "unknown key"),
        ("a=-1us,b=1ns", "a: must be a finite time"),
        ("a=1us,b=fast", "b: 'fast' is no time"),
        ("a=1us,b=1e999", "finite"),
        ("a=1us,,b=1ns", "KEY=VALUE"),
        ("ring:alpha=1us,beta=1ns,nodes=4", "gamma missing"),
        ("nowhere.json", "cannot be read"),
        ("", "unknown network"),
    ],
)
def test_bad_specs(spec, says):
    with pytest.raises(UserError, match=says):
        cost_from_spec(spec)


def test_a_file_may_have_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("net", "run-12:30"):
        (tmp_path / name).write_text(json.dumps({"a_s": 1e-4, "b_s_per_byte": 1e-9}))
        assert cost_from_spec(name) == AffineCost(1e-4, 1e-9)


def test_files(tmp_path):
    path = tmp_path / "network.json"
    path.write_text(json.dumps({"a_s": 1e-4, "b_s_per_byte": 1e-9}))
    assert cost_from_spec(str(path)) == AffineCost(1e-4, 1e-9)
    path.write_text(json.dumps({"nbytes": [1, 2], "seconds": [1, 2], "a_s": 9, "b_s_per_byte": 9}))
    assert cost_from_spec(str(path)) == TableCost((1.0, 2.0), (1.0, 2.0))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, '"a_s" is missing'),
        ({"a_s": -1, "b_s_per_byte": 1}, '"a_s" must be a finite number ≥ 0'),
        ({"a_s": True, "b_s_per_byte": 1}, "must be a number"),
        ({"a_s": "1", "b_s_per_byte": 1}, "must be a number"),
        ({"nbytes": [1, 2]}, '"seconds" must be a list'),
        ({"nbytes": 5, "seconds": [1]}, '"nbytes" must be a list'),
        ({"nbytes": [1, 2], "seconds": [1, None]}, "must be a number"),
        ({"nbytes": [2, 1], "seconds": [1, 1]}, "must ascend"),
        ({"nbytes": [1, 2], "seconds": [1, 10**400]}, "finite"),
    ],
)
def test_bad_files(value, says):
    with pytest.raises(UserError, match=f"^here: .*{says}"):
        cost_from_dict(value, "here")


@pytest.mark.parametrize(
    ("spec", "unit"),
    [
        ("k80-10gbe", "nodes"),
        ("k80-10gbe:64", "nodes"),
        ("k80-10gbe-osu", "nodes"),
        ("ring:alpha=1us,beta=1ns,gamma=1ns", "nodes"),
        ("v100-10gbe", "GPUs"),
        ("v100-56gib:16", "GPUs"),
        ("a=1ms,b=1ns", "ranks"),
    ],
)
def test_a_network_says_what_its_numbers_count(spec, unit):
    assert cluster_from_spec(spec).unit == unit
    if unit == "GPUs":
        assert "from 8 on" in cluster_from_spec(spec).note


def test_a_file_may_say_what_it_counts(tmp_path):
    value = {"networks": [{"ranks": 2, "a_s": 1, "b_s_per_byte": 0}]}
    assert cluster_from_dict(value, "here", "x").unit == "ranks"
    for one in (value, {"a_s": 1, "b_s_per_byte": 0}):
        cluster = cluster_from_dict({**one, "unit": "nodes", "note": "of one rack"}, "here", "x")
        assert (cluster.unit, cluster.note) == ("nodes", "of one rack")
    for wrong, says in (({"unit": "racks"}, '"unit" must be one of nodes, GPUs, ranks'), ({"note": 5}, '"note" must')):
        with pytest.raises(UserError, match=f"^here: {says}"):
            cluster_from_dict({**value, **wrong}, "here", "x")


def test_one_alone_sends_nothing_on_any_network():
    for spec in ("k80-10gbe", "v100-10gbe", "a=1ms,b=1ns"):
        assert cluster_from_spec(spec).between(1) == AffineCost(0, 0)
    assert cluster_from_spec("a=1ms,b=1ns").between(2) == AffineCost(1e-3, 1e-9)


def simulated(*arguments):
    return CliRunner().invoke(simulate, ["k80-googlenet", *arguments], catch_exceptions=False)


def test_simulate_counts_gpus_where_the_network_does(tmp_path):
    csv = tmp_path / "rows.csv"
    arguments = ("--network", "v100-10gbe", "--schedule", "optimal")
    table = simulated(*arguments, "--csv", str(csv)).output
    assert "GPUs  schedule" in table
    assert "16 GPUs: optimal is within" in table
    assert table.splitlines()[-1].startswith("v100-10gbe: 2 and 4 GPUs share one machine")
    assert "nodes" not in table
    assert csv.read_text().startswith("GPUs,schedule,")
    result = json.loads(simulated(*arguments, "--json").output)
    assert result["unit"] == "GPUs"
    assert "from 8 on" in result["note"]
    assert [row["GPUs"] for row in result["rows"]] == [2, 4, 8, 16]
    assert not any("nodes" in row for row in result["rows"])
    nodes = json.loads(simulated("--network", "k80-10gbe:4", "--json").output)
    assert nodes["unit"] == "nodes"
    assert "note" not in nodes
    assert "1 rank: " in simulated("--network", "a=1ms,b=1ns", "--nodes", "1").output


def test_simulate_cuts_nothing_in_a_pipe(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    schedules = ["--schedule", "bucket:123456789B", "--schedule", "wfbp"]
    for more in ([], ["--jitter", "0.1", "--trials", "3"]):
        table = simulated("--network", "a=10s,b=1us", "--nodes", "100000", *schedules, *more).output
        assert "…" not in table
        assert "bucket:123456789B" in table
        assert "efficiency" in table
    assert " -0.0%" not in simulated("--network", "v100-10gbe", "--nodes", "4,8").output
