"""Network SPECs of the command line, and the clusters of the paper."""

from __future__ import annotations

import json

import pytest

from mgwfbp.errors import UserError
from mgwfbp.schedule import AffineCost, TableCost
from mgwfbp.schedule.clusters import ALGORITHMS
from mgwfbp.simulate.specs import cost_from_dict, cost_from_spec


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
        ("k80-10gbe:many", "number of nodes"),
        ("v100-10gbe:5", "measured for 2, 4, 8, 16 nodes only"),
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
