"""Costs and their fits, on exact data, on random data, and on the public logs where they are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgwfbp.errors import UserError
from mgwfbp.schedule import AffineCost, TableCost, fit_affine
from mgwfbp.schedule.cost import costs, startup_s
from mgwfbp.schedule.fit import monotone

LOGS = Path(__file__).resolve().parents[2] / "shared" / "data" / "bcaffe-k80"


@pytest.mark.parametrize("relative", [False, True])
def test_a_line_is_found_exactly(relative):
    sizes = [256 * 4**i for i in range(9)]
    fit = fit_affine(sizes, [3e-5 + 1.5e-9 * size for size in sizes], relative=relative)
    assert fit == pytest.approx((3e-5, 1.5e-9, 1.0), rel=1e-9)


def test_relative_weights_find_the_startup_under_noise():
    rng = np.random.default_rng(0)
    sizes = np.array([256 * 4**i for i in range(10)])
    noisy = (5e-5 + 1e-9 * sizes) * rng.normal(1, 0.05, 10)
    assert fit_affine(sizes, noisy, relative=True).a == pytest.approx(5e-5, rel=0.15)


@pytest.mark.parametrize("seconds", [[3, 2, 1], [0, 1, 10], [0, 0, 0], [1, 1, 1]])
@pytest.mark.parametrize("relative", [False, True])
def test_fits_are_never_negative(seconds, relative):
    fit = fit_affine([1, 2, 3], seconds, relative=relative)
    assert fit.a >= 0
    assert fit.b >= 0


def test_a_fit_needs_two_sizes():
    with pytest.raises(ValueError, match="two different sizes"):
        fit_affine([5, 5], [1, 2])


@pytest.mark.parametrize(("nodes", "a", "b"), [(2, 102e-6, 1.66e-9), (4, 225e-6, 2.07e-9), (8, 711e-6, 3.51e-9)])
def test_public_osu_logs(nodes, a, b):
    log = LOGS / f"allreduce{nodes}.log"
    if not log.exists():
        pytest.skip("the public B-Caffe logs are not here")
    rows = [line.split() for line in log.read_text().splitlines() if line.strip() and not line.startswith("#")]
    fit = fit_affine([float(row[0].split(",")[-1]) for row in rows], [float(row[1]) * 1e-6 for row in rows])
    assert fit.a == pytest.approx(a, rel=0.005)
    assert fit.b == pytest.approx(b, rel=0.005)


@given(st.lists(st.floats(0, 100), max_size=30))
def test_monotone_keeps_the_mean_and_never_falls(values):
    result = monotone(values)
    assert np.all(np.diff(result) >= 0)
    assert result.sum() == pytest.approx(sum(values))
    assert np.array_equal(monotone(sorted(values)), sorted(values))


@given(st.lists(st.tuples(st.integers(0, 10**8), st.floats(0, 1)), min_size=2, max_size=8, unique_by=lambda p: p[0]))
def test_tables_are_monotone_everywhere(points):
    points.sort()
    cost = TableCost(tuple(float(size) for size, _ in points), tuple(seconds for _, seconds in points))
    at = costs(cost, np.linspace(0, 3e8, 200))
    assert np.all(np.diff(at) >= -1e-12)
    assert at[0] >= 0


def test_table_between_below_and_above_its_points():
    cost = TableCost((100, 200, 400), (1.0, 2.0, 3.0))
    assert [cost(size) for size in (100, 150, 400)] == [1.0, 1.5, 3.0]
    assert 0 < cost.affine.a < 1
    assert [cost(0), cost(50)] == pytest.approx([cost.affine.a, (cost.affine.a + 1) / 2])
    assert cost(1000) == pytest.approx(3.0 + 600 * (3.0 - 1.0) / 300)  # the slope from a quarter of the largest size on


def test_a_table_of_large_sizes_knows_a_small_messages_cost_by_its_line():
    sizes = [2**i for i in range(22, 28)]
    cost = TableCost(tuple(map(float, sizes)), tuple(30e-6 + 2e-10 * size for size in sizes))
    small = np.array([0, 4, 1024, 2**21])
    assert costs(cost, small) == pytest.approx(30e-6 + 2e-10 * small)


def test_below_its_first_size_a_table_costs_no_more_than_there_and_never_less_than_nothing():
    level = TableCost((100.0, 110.0, 120.0, 1000.0), (1.0, 2.0, 2.0, 2.0))
    assert level.affine.a > 1
    assert [level(0), level(50), level(100)] == [1.0, 1.0, 1.0]
    steep = TableCost((100.0, 200.0, 300.0, 400.0), (1.0, 3.0, 9.0, 27.0))
    assert [steep(0), steep(50)] == [0.0, 0.5]


def test_costs_take_a_users_scalar_function():
    assert costs(lambda nbytes: 1.0 if nbytes > 5 else 0.5, [1, 10]).tolist() == [0.5, 1.0]


def test_startup_of_each_kind():
    assert startup_s(AffineCost(0.25, 1)) == 0.25
    assert startup_s(lambda nbytes: 0.5 + nbytes) == 0.5
    assert startup_s(TableCost((1, 2, 3), (1.5, 2.0, 2.5))) == pytest.approx(1.0)


@pytest.mark.parametrize("values", [(-1, 0), (0, -1), (float("nan"), 0), (0, float("inf"))])
def test_negative_costs_are_refused(values):
    with pytest.raises(UserError, match="must be a finite number"):
        AffineCost(*values)


@pytest.mark.parametrize(
    ("nbytes", "seconds", "says"),
    [
        ((1,), (1,), "two or more points"),
        ((1, 2), (1,), "as many seconds"),
        ((2, 1), (1, 1), "must ascend"),
        ((1, 1), (1, 1), "must ascend"),
        ((1, 2), (1, -1), "seconds must be finite"),
        ((-1, 2), (1, 1), "nbytes must be finite"),
    ],
)
def test_bad_tables_are_refused(nbytes, seconds, says):
    with pytest.raises(UserError, match=says):
        TableCost(nbytes, seconds)
