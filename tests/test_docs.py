"""The numbers in the documents are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mgwfbp.cli.main import COMMANDS
from mgwfbp.models import MODELS
from mgwfbp.schedule import AffineCost, lower_bound_s, make_schedule, predict
from mgwfbp.simulate.specs import cluster_from_spec, workload_from_spec
from mgwfbp.simulate.sweep import sweep

from .test_schedule import workload

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "jobs" / "README.md", *(ROOT / "docs").glob("**/*.md")])


def test_the_counter_example_table():
    page = (ROOT / "docs/optimal-schedule.md").read_text()
    work, cost = workload([1, 0.9, 0.9], [5, 0, 0]), AffineCost(1, 1)
    for place, (layer, ready) in enumerate(zip(work.layers, work.ready_s(), strict=True), start=0):
        assert f"| {place} | {layer.backward_s:.1f} | {ready:.1f} | {layer.nbytes} |" in page
    for name in ("wfbp", "single", "mgwfbp", "optimal"):
        result = predict(work, make_schedule(name, work, cost), cost)
        messages = ", ".join(f"{m.start_s:.1f} → {m.end_s:.1f}" for m in result.messages)
        assert f"| {name} | {messages} | {result.iteration_s:.1f} |" in page


def test_the_googlenet_table():
    page = (ROOT / "docs/optimal-schedule.md").read_text()
    rows = sweep(workload_from_spec("k80-googlenet"), cluster_from_spec("k80-10gbe"), [64])
    for row in rows:
        line = f"| 64 | {row.schedule} | {row.buckets} | {row.iteration_s * 1e3:.1f} | {row.above_bound:.1%} |"
        assert line in page
    readme = (ROOT / "README.md").read_text()
    for row in rows:
        assert re.search(rf"{row.schedule} +{row.buckets} +{row.iteration_s * 1e3:.1f} ", readme), row.schedule


def test_the_table_of_the_next_forward():
    page = (ROOT / "docs/next-forward.md").read_text()
    work, cluster, nodes = workload_from_spec("k80-googlenet"), cluster_from_spec("k80-10gbe"), (8, 16, 32, 64, 128)

    def row(name, seconds):
        return f"| {name} | " + " | ".join(f"{value * 1e3:.1f}" for value in seconds) + " |"

    for name, title in (("optimal", "optimal (backward only)"), ("pipelined", "pipelined"), ("sharded", "sharded")):
        costs = [cluster.cost(n) for n in nodes]
        times = [predict(work, make_schedule(name, work, cost), cost).iteration_s for cost in costs]
        assert row(title, times) in page
    assert row("bound", [lower_bound_s(work, cluster.cost(n)) for n in nodes]) in page
    best = make_schedule("pipelined", work, cluster.cost(64))
    sent = " ".join(f"[{bucket.first}, {bucket.last}]" for bucket in best.buckets)
    assert sent in " ".join(page.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere_and_commands_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
    for command in re.findall(r"(?<!import )mgwfbp ([a-z]+)", text):
        assert command in COMMANDS or f"mgwfbp {command}" in ("mgwfbp in", "mgwfbp as"), command
    own = re.findall(r'@mg\.model\("(\w+)"\)', "".join(path.read_text() for path in (ROOT / "examples").glob("*.py")))
    for model in re.findall(r"mgwfbp train ([a-z0-9]+)", text):
        assert model in MODELS or model in [*own, "name"], model


def test_no_page_names_a_place_of_some_machine():
    for page in PAGES:
        assert not re.search(r"(?<![\w.])/(work|root|tmp|home)/", page.read_text()), page.name
