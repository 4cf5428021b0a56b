"""Policies against exhaustive search, the paper's numbers, and each other."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgwfbp.comm.transports.registry import TRANSPORTS, transport
from mgwfbp.data.data import DATASETS, dataset
from mgwfbp.errors import UserError
from mgwfbp.fields import bytes_from_text
from mgwfbp.models import MODELS, model
from mgwfbp.optim import OPTIMIZERS, optimizer
from mgwfbp.schedule import (
    POLICIES,
    AffineCost,
    Bucket,
    LayerProfile,
    Schedule,
    TableCost,
    Workload,
    compared,
    lower_bound_s,
    make_schedule,
    policy,
    predict,
    schedule_from_cuts,
)
from mgwfbp.schedule.cost import Cost
from mgwfbp.schedule.optimal import _affine, _any_cost
from mgwfbp.simulate.specs import cost_from_spec, workload_from_spec


def workload(times, sizes, forward_s=0.0):
    layers = [LayerProfile(f"l{i}", size, size, time) for i, (time, size) in enumerate(zip(times, sizes, strict=True))]
    return Workload("test", 1, forward_s, tuple(layers))


# Few distinct values, so that ties, zero times and zero sizes are frequent.
times = st.one_of(st.integers(0, 4).map(float), st.floats(0, 10))
sizes = st.one_of(st.integers(0, 4), st.integers(0, 10**6))
affine_costs = st.builds(AffineCost, st.one_of(st.integers(0, 3).map(float), st.floats(0, 20)), st.floats(0, 2))


@st.composite
def workloads(draw, most=12):
    layers = draw(st.integers(1, most))
    lists = [draw(st.lists(what, min_size=layers, max_size=layers)) for what in (times, sizes)]
    return workload(*lists, forward_s=draw(times))


@st.composite
def long_workloads(draw, most):
    """As above from one seed: hypothesis takes long to draw long lists."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    layers, zeros = rng.randint(1, most), rng.choice([0.0, 0.3, 0.8])
    lists = [[draw_one() if rng.random() >= zeros else 0 for _ in range(layers)] for draw_one in _kinds(rng)]
    return workload(*lists)


def _kinds(rng):
    whole = rng.random() < 0.5
    return (
        (lambda: float(rng.randint(0, 4))) if whole else (lambda: rng.uniform(0, 10)),
        (lambda: rng.randint(0, 4)) if whole else (lambda: rng.randint(0, 10**6)),
    )


@st.composite
def table_costs(draw):
    points = draw(st.lists(st.tuples(st.integers(0, 10**7), st.floats(0, 50)), min_size=2, max_size=6))
    nbytes = sorted({size for size, _ in points} | {10**8})
    seconds = sorted(seconds for _, seconds in points)[: len(nbytes)]
    return TableCost(tuple(map(float, nbytes)), tuple(seconds + [seconds[-1]] * (len(nbytes) - len(seconds))))


def best_by_search(work, cost):
    """Every way to cut, one after the other, each ended by the definition and not by predict."""
    ready, prefix, layers = work.ready_s(), work.prefix_nbytes(), len(work.layers)
    price = {(i, j): float(cost(prefix[j] - prefix[i])) for i in range(layers) for j in range(i + 1, layers + 1)}

    def rest(first, end):  # the best end if the layers before `first` are sent at `end`
        if first == layers:
            return end
        return min(rest(j, max(end, ready[j - 1]) + price[first, j]) for j in range(first + 1, layers + 1))

    return rest(0, 0.0)


@given(workloads(), st.one_of(affine_costs, table_costs()))
@settings(max_examples=200)
def test_optimal_equals_exhaustive_search(work, cost):
    got = predict(work, make_schedule("optimal", work, cost), cost).comm_end_s
    assert got == pytest.approx(best_by_search(work, cost), rel=1e-9, abs=1e-12)


@given(workloads(most=9), affine_costs)
@settings(max_examples=160)
def test_optimal_equals_exhaustive_search_for_a_users_scalar_cost(work, line):
    def steps(nbytes: float) -> float:  # monotone, but neither a line nor a table, and not for arrays
        return line(nbytes) if nbytes < 1000 else 3 * line(nbytes) + 1

    got = predict(work, make_schedule("optimal", work, steps), steps).comm_end_s
    assert got == pytest.approx(best_by_search(work, steps), rel=1e-9, abs=1e-12)


@given(long_workloads(most=60), affine_costs)
@settings(max_examples=160)
def test_linear_and_quadratic_forms_agree(work, cost):
    ready, prefix = work.ready_s(), work.prefix_nbytes()

    def end(before: list[int]) -> float:
        cuts, place = [], len(ready)
        while place:
            place = before[place]
            cuts.append(place)
        return predict(work, schedule_from_cuts("x", cuts[::-1], len(ready)), cost).comm_end_s

    (linear, first), (quadratic, second) = _affine(ready, prefix, cost.a, cost.b), _any_cost(ready, prefix, cost)
    assert end(linear) == pytest.approx(end(quadratic), rel=1e-9, abs=1e-12)
    assert first == pytest.approx(second, rel=1e-9, abs=1e-12)


def all_schedules(layers):
    for cuts in range(2 ** (layers - 1)):
        yield schedule_from_cuts("x", [0, *(i + 1 for i in range(layers - 1) if cuts >> i & 1)], layers)


@given(long_workloads(most=7), st.one_of(affine_costs, table_costs()))
@settings(max_examples=120)
def test_of_equally_fast_schedules_optimal_has_the_fewest_buckets(work, cost):
    found = make_schedule("optimal", work, cost)
    end = predict(work, found, cost).iteration_s
    as_fast = [s for s in all_schedules(len(work.layers)) if predict(work, s, cost).iteration_s < end * (1 - 1e-12)]
    assert not as_fast
    fewer = [s for s in all_schedules(len(work.layers)) if len(s.buckets) < len(found.buckets)]
    assert all(predict(work, s, cost).iteration_s > end * (1 - 1e-12) for s in fewer)


def test_messages_that_hide_are_merged():
    work, cost = workload([1.0] * 20, [1] * 20), AffineCost(0.1, 0.01)  # each hides behind the next layer
    assert len(make_schedule("optimal", work, cost).buckets) == 2
    assert predict(work, make_schedule("optimal", work, cost), cost).comm_end_s == pytest.approx(20.11)


@given(long_workloads(most=40), st.one_of(affine_costs, table_costs()))
@settings(max_examples=200)
def test_no_policy_beats_optimal(work, cost):
    best = predict(work, make_schedule("optimal", work, cost), cost).iteration_s
    for name in ("wfbp", "single", "mgwfbp", "bucket:1B", "bucket:3B", "bucket:25MiB"):
        assert predict(work, make_schedule(name, work, cost), cost).iteration_s >= best * (1 - 1e-12)


def test_counter_example_to_the_papers_algorithm():
    work, cost = workload([1, 0.9, 0.9], [5, 0, 0]), AffineCost(1, 1)
    greedy, exact = (make_schedule(name, work, cost) for name in ("mgwfbp", "optimal"))
    assert greedy.buckets == (Bucket(0, 2),)
    assert exact.buckets == (Bucket(0, 0), Bucket(1, 2))
    assert predict(work, greedy, cost).iteration_s == pytest.approx(8.8)
    assert predict(work, exact, cost).iteration_s == pytest.approx(8.0)


@given(long_workloads(most=15), affine_costs)
@settings(max_examples=200)
def test_mgwfbp_is_the_papers_algorithm_as_printed(work, cost):
    """Algorithm 1 word for word: all start times recomputed after each merge, layers numbered L..1."""
    layers = len(work.layers)
    tb, p = [layer.backward_s for layer in work.layers], [float(layer.nbytes) for layer in work.layers]
    tau_b = [sum(tb[:i]) for i in range(layers)]
    tc, merged = [cost(size) for size in p], [False] * layers

    def starts():
        tau_c, end = [], 0.0
        for i in range(layers):
            tau_c.append(max(end, tau_b[i] + tb[i]))
            end = tau_c[i] + tc[i] if not merged[i] else end
        return tau_c

    # Rounding may decide a comparison within its last bit differently in the two forms; such an input proves nothing.
    for i in range(layers - 1):
        gap = tau_b[i + 1] + tb[i + 1] - starts()[i]
        if abs(gap - cost.a) < 1e-9 * (1 + abs(gap)):
            return
        if gap < cost.a:
            merged[i], tc[i] = True, 0.0
            p[i + 1] += p[i]
            tc[i + 1] = cost(p[i + 1])
    cuts = [0, *(i + 1 for i in range(layers - 1) if not merged[i])]
    assert make_schedule("mgwfbp", work, cost).buckets == schedule_from_cuts("", cuts, layers).buckets


def test_the_two_bounds_on_the_page_of_the_optimal_schedule():
    page = (Path(__file__).resolve().parents[1] / "docs" / "optimal-schedule.md").read_text("utf-8")
    work, cost = workload_from_spec("k80-googlenet"), cost_from_spec("k80-10gbe:64")
    ready, sizes = work.ready_s(), work.prefix_nbytes()
    ends = [ready[layer] + cost(sizes[-1] - sizes[layer]) for layer in range(len(ready))]
    backward_only, any_schedule = work.forward_s + max(ready[-1], *ends), lower_bound_s(work, cost)
    assert f"the **bound of any schedule**, {any_schedule * 1e3:.1f} ms" in page
    assert f"the **backward-only bound**, {backward_only * 1e3:.1f} ms" in page
    for name in compared():
        schedule = make_schedule(name, work, cost)
        seconds = predict(work, schedule, cost).iteration_s
        above = "" if schedule.runs_into_forward else f" {seconds / backward_only - 1:.1%}"
        figures = f"{len(schedule.buckets)} | {seconds * 1e3:.1f} | {seconds / any_schedule - 1 + 1e-9:.1%}"
        assert f"| 64 | {name} | {figures} |{above} |" in page
        assert schedule.runs_into_forward or seconds >= backward_only


def test_fixed_size_closes_a_bucket_when_it_is_full():
    work = workload([1] * 5, [3, 3, 3, 10, 1])
    schedule = make_schedule("bucket:6B", work, AffineCost(1, 1))
    assert schedule.buckets == (Bucket(0, 1), Bucket(2, 3), Bucket(4, 4))
    assert schedule.policy == "bucket:6B"


@pytest.mark.parametrize(("text", "nbytes"), [("25MiB", 25 * 2**20), ("64 kB", 64000), ("1e6", 10**6), ("7", 7)])
def test_sizes(text, nbytes):
    assert bytes_from_text(text, "here") == nbytes


@pytest.mark.parametrize("text", ["", "0", "-5", "many", "5XB", "1e999", "nan"])
def test_bad_sizes(text):
    with pytest.raises(UserError, match="here: .*no size"):
        bytes_from_text(text, "here")


def test_predict_by_hand():
    work = workload([1, 1, 1], [10, 0, 20], forward_s=2)
    result = predict(work, schedule_from_cuts("x", [0, 1], 3), AffineCost(0.5, 0.1))
    assert [(m.ready_s, m.start_s, m.end_s) for m in result.messages] == [(1, 1, 2.5), (3, 3, 5.5)]
    assert result.iteration_s == 7.5
    assert result.exposed_s == 2.5
    assert result.overlap == pytest.approx(1.5 / 4)


def test_nothing_to_hide_is_hidden():
    assert predict(workload([1], [1]), schedule_from_cuts("x", [0], 1), AffineCost(0, 0)).overlap == 1.0


def test_a_users_policy_is_one_decorated_function():
    @policy("halves")
    def halves(work: Workload, cost: Cost) -> Schedule:
        middle = len(work.layers) // 2
        return schedule_from_cuts("halves", [0, middle] if middle else [0], len(work.layers))

    try:
        schedule = make_schedule("halves", workload([1] * 4, [1] * 4), AffineCost(1, 1))
        assert schedule.buckets == (Bucket(0, 1), Bucket(2, 3))
    finally:
        del POLICIES["halves"]


REGISTRIES = [  # each with a name of its own that is not in its dict, if it has one
    (policy, POLICIES, "optimal", "dear"),
    (model, MODELS, "lenet", None),
    (dataset, DATASETS, "mnist5k", None),
    (optimizer, OPTIMIZERS, "sgd", None),
    (transport, TRANSPORTS, "host", "auto"),
]


def made_again():
    """What a notebook's cell makes when it is run: another object each time, under the same name."""

    def mine(*arguments):
        return arguments

    return mine


@pytest.mark.parametrize(("decorator", "registry", "name", "reserved"), REGISTRIES)
def test_a_name_that_is_taken_is_not_replaced_in_silence(decorator, registry, name, reserved):
    before, kind = dict(registry), decorator.__name__
    for each, owner in ((name, " by mgwfbp.*"), (reserved, "")):
        if each is not None:
            with pytest.raises(UserError, match=rf'^@{kind}\("{each}"\): that name is taken{owner}; .*"my-{each}"'):
                decorator(each)(made_again())
    assert registry == before
    try:
        decorator("mine")(made_again())
        first = registry["mine"]
        decorator("mine")(made_again())
        assert registry["mine"] != first
        with pytest.raises(UserError, match=r"is taken by tests.test_schedule.made_again.<locals>.mine"):
            decorator("mine")(lambda *arguments: None)
        with pytest.raises(UserError, match="is taken"):
            decorator("mine")(partial(made_again()))
    finally:
        del registry["mine"]
    assert registry == before


@pytest.mark.parametrize("asked", ["lazy", "best"])  # `best` tries all
def test_a_policy_that_returns_nothing_is_named(asked):
    POLICIES["lazy"] = lambda work, cost: None  # type: ignore[assignment,return-value]
    try:
        with pytest.raises(UserError, match="policy lazy returned a NoneType"):
            make_schedule(asked, workload([1, 1], [1, 1]), AffineCost(1, 1))
    finally:
        del POLICIES["lazy"]


@pytest.mark.parametrize("buckets", [[(0, 0)], [(0, 1), (1, 2)], [(1, 2)], [(0, 2), (3, 3)], [(0, 1), (2, 1)], []])
def test_a_policy_must_cover_every_layer_once(buckets):
    with pytest.raises(UserError, match="do not cover"):
        Schedule("mine", tuple(Bucket(*bucket) for bucket in buckets)).check(3)


def test_unknown_policy_names_the_nearest():
    with pytest.raises(UserError, match="unknown schedule 'optimul': did you mean 'optimal'"):
        make_schedule("optimul", workload([1], [1]), AffineCost(1, 1))
