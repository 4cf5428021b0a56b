"""`pipelined`, `sharded`, `best`: against exhaustive search in their own class, the bound, and the docs' table."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgwfbp.errors import UserError
from mgwfbp.schedule import (
    ALL_REDUCE,
    PIPELINED,
    SHARDED,
    AffineCost,
    Bucket,
    LayerProfile,
    Schedule,
    TableCost,
    Workload,
    make_schedule,
    predict,
    schedule_from_cuts,
    workload_from_dict,
    workload_to_dict,
)
from mgwfbp.schedule.bound import lower_bound_s
from mgwfbp.schedule.cost import halves, message_times
from mgwfbp.simulate.specs import cost_from_spec, workload_from_spec
from tests.test_schedule import affine_costs, table_costs

NAMES = ("wfbp", "single", "mgwfbp", "optimal", "pipelined", "sharded")


@st.composite
def workloads(draw, most=7):
    """From one seed; half of them with few distinct values, so that ties, zeros and slack are frequent."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    whole, count, zeros = rng.random() < 0.5, rng.randint(1, most), rng.choice([0.0, 0.4])

    def value(largest):
        return 0 if rng.random() < zeros else rng.randint(0, 4) if whole else rng.uniform(0, largest)

    layers = [LayerProfile(f"l{i}", 1, int(value(10**6)), float(value(10)), float(value(10))) for i in range(count)]
    lead = rng.choice([0.0, 1.0])
    return Workload("test", 1, sum(layer.forward_s for layer in layers) + lead, tuple(layers))


@st.composite
def costs(draw):
    """A line, a table, or either with halves of its own."""
    cost = draw(st.one_of(affine_costs, table_costs()))
    kind = type(cost)
    if draw(st.booleans()):
        other = draw(affine_costs if kind is AffineCost else table_costs())
        parts = (cost, other) if draw(st.booleans()) else (other, cost)
        return AffineCost(cost.a, cost.b, parts) if kind is AffineCost else TableCost(cost.nbytes, cost.seconds, parts)
    return cost


def groupings(first, last):
    """Every way to cut the layers [first, last) into buckets."""
    if first == last:
        yield []
    for end in range(first + 1, last + 1):
        for rest in groupings(end, last):
            yield [Bucket(first, end - 1), *rest]


def duration(work, buckets, cost, mode):
    """P by its definition, for buckets in send order."""
    ready, left, prefix = work.ready_s(), work.forward_left_s(), work.prefix_nbytes()
    size = {bucket: float(prefix[bucket.last + 1] - prefix[bucket.first]) for bucket in buckets}
    reduce, gather = halves(cost) if mode == SHARDED else (cost, None)
    free, ends = 0.0, {}
    for bucket in buckets:
        free = ends[bucket] = max(free, ready[bucket.last]) + float(reduce(size[bucket]))
    if mode == SHARDED:
        free = max(free, ready[-1])
        for bucket in reversed(buckets):
            free = ends[bucket] = free + float(gather(size[bucket]))
    return max(ready[-1] + work.forward_s, *(end + left[bucket.last] for bucket, end in ends.items()))


def best_pipelined(work, cost):
    layers = len(work.layers)
    return min(
        duration(work, [*a, *c, *reversed(b)], cost, PIPELINED)
        for d in range(layers + 1)
        for p in range(d, layers + 1)
        for a in groupings(0, d)
        for b in groupings(d, p)
        for c in groupings(p, layers)
    )


@given(workloads(most=6), costs())
@settings(max_examples=60)
def test_pipelined_equals_exhaustive_search_in_its_class(work, cost):
    found = make_schedule("pipelined", work, cost)
    assert predict(work, found, cost).iteration_s == pytest.approx(best_pipelined(work, cost), rel=1e-9, abs=1e-9)


@given(workloads(), costs())
@settings(max_examples=120)
def test_sharded_equals_exhaustive_search_in_its_class(work, cost):
    found = make_schedule("sharded", work, cost)
    by_search = min(duration(work, cuts, cost, SHARDED) for cuts in groupings(0, len(work.layers)))
    assert predict(work, found, cost).iteration_s == pytest.approx(by_search, rel=1e-9, abs=1e-9)


@given(workloads(), costs())
@settings(max_examples=120)
def test_predict_is_the_definition_in_every_mode(work, cost):
    for cuts in list(groupings(0, len(work.layers)))[:20]:
        for mode in (PIPELINED, SHARDED):
            said = predict(work, Schedule("x", tuple(cuts), mode), cost)
            assert said.iteration_s == pytest.approx(duration(work, cuts, cost, mode), rel=1e-9, abs=1e-9)
            alone = work.forward_s + work.backward_s
            assert said.exposed_s == pytest.approx(said.iteration_s - alone, rel=1e-9, abs=1e-9)
            total = sum(message.end_s - message.start_s for message in said.messages)
            hidden = said.behind_backward_s + said.behind_forward_s
            assert hidden == pytest.approx(total * said.overlap, rel=1e-9, abs=1e-6)


@given(workloads(most=25), costs())
@settings(max_examples=120)
def test_pipelined_is_no_worse_than_optimal_best_no_worse_than_any_and_none_beats_the_bound(work, cost):
    times = {name: predict(work, make_schedule(name, work, cost), cost).iteration_s for name in (*NAMES, "best")}
    assert times["pipelined"] <= times["optimal"] * (1 + 1e-9)
    assert times["best"] <= min(times.values()) * (1 + 1e-8)
    assert min(times.values()) >= lower_bound_s(work, cost) * (1 - 1e-9)


@given(workloads(most=5), costs(), st.randoms())
@settings(max_examples=80)
def test_the_bound_holds_in_any_order(work, cost, rng):
    cuts = rng.choice(list(groupings(0, len(work.layers))))
    rng.shuffle(cuts)
    assert duration(work, cuts, cost, PIPELINED) >= lower_bound_s(work, cost) * (1 - 1e-9)


TABLE = {  # ms on the authors' ring; recomputed by two programs other than this one (docs/next-forward.md)
    "optimal": (317.7, 336.4, 349.8, 368.0, 394.2),
    "dear:25MB": (400.9, 408.2, 412.9, 417.5, 424.1),
    "pipelined": (308.8, 309.5, 311.0, 313.87, 337.3),
    "sharded": (308.8, 309.5, 311.0, 313.87, 329.6),
}
BOUND = (308.8, 309.5, 311.0, 313.87, 319.7)


@pytest.mark.parametrize(("place", "nodes"), [(0, 8), (1, 16), (2, 32), (3, 64), (4, 128)])
def test_the_table_of_the_k80_trace(place, nodes):
    work, cost = workload_from_spec("k80-googlenet"), cost_from_spec(f"k80-10gbe:{nodes}")
    for name, row in TABLE.items():
        got = predict(work, make_schedule(name, work, cost), cost).iteration_s * 1e3
        assert got == pytest.approx(row[place], rel=1e-3), name
    assert lower_bound_s(work, cost) * 1e3 == pytest.approx(BOUND[place], rel=1e-3)


def test_ten_plain_all_reduces_in_another_order_at_64_nodes():
    schedule = make_schedule("pipelined", workload_from_spec("k80-googlenet"), cost_from_spec("k80-10gbe:64"))
    assert [(bucket.first, bucket.last + 1) for bucket in schedule.buckets] == [
        (0, 1), (1, 12), (21, 27), (27, 34), (34, 42), (42, 54), (54, 63), (63, 64), (14, 21), (12, 14)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_where_messages_hide_anyway_few_are_sent(seed):
    rng = random.Random(seed)
    layers = tuple(LayerProfile(str(i), 1, rng.randint(1, 100), 1.0, 0.5) for i in range(200))
    work, cost = Workload("quiet", 1, 100.0, layers), AffineCost(1e-3, 1e-9)
    for name in ("pipelined", "sharded"):
        assert len(make_schedule(name, work, cost).buckets) <= 10


def test_best_leaves_out_what_the_run_does_not_permit():
    work, cost = workload_from_spec("k80-googlenet"), cost_from_spec("k80-10gbe:128")
    assert make_schedule("best", work, cost).mode == SHARDED
    assert make_schedule("best", work, cost, (ALL_REDUCE, PIPELINED)).mode == PIPELINED
    assert make_schedule("best", work, cost, (ALL_REDUCE,)).policy == "optimal"


def test_forward_times_are_shared_out_where_they_were_not_measured():
    layers = [LayerProfile("a", 1, 1, 1.0), LayerProfile("b", 1, 1, 3.0)]
    assert Workload("w", 1, 2.0, tuple(layers)).forward_left_s() == [0.5, 2.0]
    measured = [LayerProfile("a", 1, 1, 1.0, 0.25), LayerProfile("b", 1, 1, 3.0, 0.5)]
    work = Workload("w", 1, 2.0, tuple(measured))
    assert work.forward_left_s() == [0.25, 0.75]
    assert workload_from_dict(workload_to_dict(work), "here") == work
    # The 1.25 s before layer b are time for its message, too: backward 4, b's message until 5.5, forward of b, a.
    late = predict(work, schedule_from_cuts("x", [0], 2, PIPELINED), AffineCost(1.5, 0.0))
    assert late.iteration_s == pytest.approx(4 + 1.5 + 0.75)
    assert predict(work, schedule_from_cuts("x", [0], 2), AffineCost(1.25, 0.0)).iteration_s == pytest.approx(6 + 1.25)


def test_forward_times_that_are_more_than_forward_are_refused():
    value = workload_to_dict(Workload("w", 1, 1.0, (LayerProfile("a", 1, 1, 1.0, 2.0),)))
    with pytest.raises(UserError, match="here: the layers' forward_s add up to 2"):
        workload_from_dict(value, "here")


def test_halves_of_a_ring_are_its_two_phases():
    cost = cost_from_spec("ring:alpha=1ms,beta=2ns,gamma=1ns,nodes=4")
    scatter, gather = halves(cost)
    for nbytes in (0.0, 1e6):
        assert scatter(nbytes) + gather(nbytes) == pytest.approx(cost(nbytes))
    assert scatter(1e6) > gather(1e6)
    for part in halves(lambda nbytes: 2 * nbytes):
        assert part(3.0) == 3.0


def test_consecutive_messages_never_overlap_on_the_channel():
    work, cost = workload_from_spec("k80-googlenet"), cost_from_spec("k80-10gbe:64")
    for name in ("pipelined", "sharded"):
        messages = predict(work, make_schedule(name, work, cost), cost).messages
        assert all(after.start_s >= before.end_s for before, after in pairwise(messages))
        assert all(message.start_s >= message.ready_s for message in messages)


# The example that docs/next-forward.md works out by hand: (backward, forward, size) of each layer, and the network.
EXAMPLE = ((1, 1, 1), (1, 2, 2), (1, 2, 1), (1, 1, 1))
COST = AffineCost(2.0, 1.0)
PAGE = (Path(__file__).resolve().parents[1] / "docs" / "next-forward.md").read_text("utf-8")


def example():
    layers = [LayerProfile(f"l{i}", size, size, float(b), float(f)) for i, (b, f, size) in enumerate(EXAMPLE)]
    return Workload("example", 1, 6.0, tuple(layers))


def run_of(first, last):
    return f"{first}" if first == last else f"{first}…{last}"


def drawn(name, spans):
    """A row of a picture: what lies where, four letters to a unit of time."""
    letters = [" "] * (1 + int(4 * max(end for _, end, _ in spans)))
    for start, end, label in spans:
        letters[int(4 * start) : int(4 * start) + 1 + len(label)] = f"|{label}"
        letters[int(4 * end)] = "|"
    return f"    {name:<9}" + "".join(letters)


@pytest.mark.parametrize(("name", "takes"), [("optimal", "16"), ("pipelined", "15"), ("sharded", "14.5")])
def test_the_pictures_are_what_is_predicted(name, takes):
    work = example()
    result = predict(work, make_schedule(name, work, COST), COST)
    assert f"`{name}` takes {takes}" in PAGE
    assert result.iteration_s == float(takes)
    ends = [0.0, *work.ready_s()]
    compute = [(start, end, f"b{i}") for i, (start, end) in enumerate(pairwise(ends))]
    compute += [(*result.forward[i], f"f{i}") for i in reversed(range(len(EXAMPLE)))]
    kinds = {"all-reduce": "", "reduce-scatter": "rs ", "all-gather": "ag "}
    channel = [(m.start_s, m.end_s, kinds[m.kind] + run_of(m.bucket.first, m.bucket.last)) for m in result.messages]
    scale = "    time     " + "".join(f"{t:<4}" for t in range(1 + int(result.iteration_s))).rstrip()
    assert "\n".join([scale, drawn("compute", compute), drawn("channel", channel), ""]) in PAGE


def test_the_numbers_of_the_pipelined_example():
    work = example()
    r, q, takes = work.ready_s(), work.forward_left_s(), message_times(COST, work.prefix_nbytes())
    for i, ((b, f, size), ready, left) in enumerate(zip(EXAMPLE, r, q, strict=True)):
        assert f"| {i} | {b} | {f} | {size} | {ready:g} | {left:g} |" in PAGE
    bounds = [r[i] + COST(work.nbytes - work.prefix_nbytes()[i]) + q[i] for i in range(4)]
    assert lower_bound_s(work, COST) == max(bounds) == bounds[3]
    assert f"The bound of any schedule is {bounds[3]:g} (layer 3: {r[3]:g} + 2 + 1 + {q[3]:g})" in PAGE

    def end(first, last, gates, start):
        """E(first, last | gates, start), over every way to cut."""
        if first == last:
            return start
        return min(max(end(first, i, gates, start), gates[last - 1]) + takes[i, last] for i in range(first, last))

    schedule = make_schedule("pipelined", work, COST)
    assert schedule.buckets == (Bucket(0, 0), Bucket(2, 3), Bucket(1, 1))
    f, h = end(0, 1, r, 0.0), end(1, 2, q, 0.0)
    t = end(2, 4, r, f)
    for name, symbols, value in (("f", "0, 1 | r, 0", f), ("t", f"2, 4 | r, {f:g}", t), ("h", "1, 2 | q, 0", h)):
        assert f"- {name} = E({symbols}) = {value:g}:" in PAGE
    assert f"- P = max(4 + 6, {t:g} + max({h:g}, {q[3]:g})) = {max(10, t + max(h, q[3])):g}." in PAGE
    alone = end(0, 4, r, 0.0)
    assert f"f = t = {alone:g}, h = 0, P = {alone:g} + {q[3]:g} = {alone + q[3]:g}." in PAGE


def test_the_pairs_of_the_sharded_example():
    work = example()
    r, q, sizes = work.ready_s(), work.forward_left_s(), work.prefix_nbytes()
    half, _ = halves(COST)
    kept = {0: [(0.0, 0.0, ())]}
    for j in range(1, 5):
        made = []
        for i in range(j):
            price = half(sizes[j] - sizes[i])
            made += [(max(f, r[j - 1]) + price, max(g, q[j - 1]) + price, (*cuts, i)) for f, g, cuts in kept[i]]
        kept[j] = []
        for f, g, cuts in sorted(made):
            least = all(g < other for _, other, _ in kept[j])
            if least:
                kept[j].append((f, g, cuts))
            buckets = ", ".join(run_of(first, end - 1) for first, end in pairwise([*cuts, j]))
            word = ("kept: R + G = 14.5" if j == 4 else "kept") if least else "undercut"
            assert f"| {j} | {buckets} | {f:g} | {g:g} | {word} |" in PAGE
    assert [len(kept[j]) for j in range(1, 5)] == [1, 1, 2, 1]
    assert sum(kept[4][0][:2]) == 14.5 == predict(work, make_schedule("sharded", work, COST), COST).iteration_s
    assert make_schedule("sharded", work, COST).buckets == (Bucket(0, 1), Bucket(2, 3))
