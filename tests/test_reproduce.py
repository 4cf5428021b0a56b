"""The report of `mgwfbp reproduce`: kinds of numbers stand apart, and what must match does."""

from __future__ import annotations

import pytest

from mgwfbp.schedule import AffineCost, make_schedule
from mgwfbp.simulate.figures import read_shipped
from mgwfbp.simulate.report import FORMULAS, KINDS, Report, tally
from mgwfbp.simulate.reproduce import reproduce
from mgwfbp.simulate.specs import k80_10gbe, workload_from_spec

from .test_simulate import event_driven


def test_nothing_that_nobody_published_is_among_the_papers_figures():
    def parts(kind, name):
        return [part for key, part in read_shipped(kind, name).items() if key != "source"]

    papers, programs = parts("paper", "mgwfbp"), parts("independent", "googlenet")
    assert {part["kind"] for part in papers} == {"printed", "measured", "program"}
    assert {part["kind"] for part in programs} == {"independent"}
    assert all("unpublished" in part["source"] for part in programs)
    assert all(len(part["source"]) > 20 for part in papers)
    for report in reproduce():
        for line in report.lines:
            assert (line.theirs is None) == (line.kind == "")
            assert line.basis
        if {line.kind for line in report.lines} & {"independent", "hand"}:
            assert "| printed" not in report.markdown()
            assert "| measured" not in report.markdown()


def test_reproduce_matches_where_it_should():
    reports = reproduce()
    assert [failure for report in reports for failure in report.failures()] == []
    lines = [line for report in reports for line in report.lines]
    checked = {kind: sum(line.matches is True for line in lines if line.kind == kind) for kind in KINDS}
    assert checked == {"printed": 2, "measured": 0, "program": 15, "independent": 37, "hand": 2}
    found = {kind: sum(line.kind == kind for line in lines) for kind in KINDS}
    assert found == {"printed": 6, "measured": 66, "program": 15, "independent": 37, "hand": 2}
    counts = tally(reports)
    assert counts.startswith("6 printed in the paper (2 of 2 checked match, 4 only shown, 0 within 10 %); 66 measured")
    assert "37 by an independent program, unpublished (37 of 37 checked match)" in counts
    assert f"{sum(line.basis == FORMULAS for line in lines)} of ours by their formulas from their trace" in counts


def test_what_the_paper_printed_of_resnet50_stands_beside_ours_with_the_reason():
    gains = reproduce()[0]
    known = {line.labels: line for line in gains.lines if line.theirs is not None}
    for against, printed, ours in (("wfbp", 1.75, 1.38), ("single", 1.45, 1.0)):
        line = known["resnet50", "mgwfbp", against]
        assert (line.kind, line.theirs, line.matches) == ("printed", printed, None)
        assert line.ours == pytest.approx(ours, abs=0.005)
        assert f"| resnet50 | mgwfbp | {against} | {printed:.2f} | {ours:.2f} |" in gains.markdown()
    assert "ResNet-50's cannot be checked: no trace of it is public" in gains.markdown()
    # the reason that the text gives: no layer takes as long as a start-up, so the greedy merges all of them
    work, cost = workload_from_spec("k80-resnet50"), k80_10gbe(64)
    assert max(layer.backward_s for layer in work.layers) < cost.a
    assert len(make_schedule("mgwfbp", work, cost).buckets) == 1


def test_a_program_that_knows_events_only_finds_the_times_of_the_others():
    """What nobody outside can run is found again by the simulation above, which anybody can."""
    work = workload_from_spec("k80-googlenet")
    known = read_shipped("independent", "googlenet")["googlenet_simulated_ms"]
    program = read_shipped("paper", "mgwfbp")["googlenet_program_ms"]
    for place, n in enumerate(known["nodes"]):
        for name in ("wfbp", "single", "mgwfbp", "optimal"):
            seconds = event_driven(work, make_schedule(name, work, k80_10gbe(n)), k80_10gbe(n))
            assert seconds * 1e3 == pytest.approx(known[name][place], abs=0.051), (n, name)
    for place, n in enumerate(program["nodes"]):
        cost = AffineCost(2 * n * 45.25e-6, k80_10gbe(n).b)
        for name in ("wfbp", "single", "mgwfbp"):
            seconds = event_driven(work, make_schedule(name, work, cost), cost)
            assert seconds * 1e3 == pytest.approx(program[name][place], abs=0.0006), (n, name)


def test_a_report_tells_kinds_apart_and_notices_what_differs():
    report = Report("t", "x", ("net",), "ms", "somebody's paper")
    report.add(("a",), 100.08, FORMULAS, "printed", 100.0, 0.001)
    report.add(("b",), 100.2, FORMULAS, "printed", 100.0, 0.001)
    report.add(("c",), 5.0, "ours alone")
    report.add(("d",), 150.0, "an estimate", "measured", 100.0)
    report.add(("e",), 9.9999, "ours", "hand", 10.0, 0.1)
    assert report.failures() == ["t: b: 100.2 ms, 100.0 expected (printed in the paper)"]
    table = report.markdown()
    head = "| net | printed in the paper (ms) | measured by the authors (ms) | by hand (ms) | ours (ms) | difference |"
    assert head in table
    assert f"| a | 100.0 |  |  | 100.1 | +0.1%, matches | {FORMULAS} |" in table
    assert "| b | 100.0 |  |  | 100.2 | +0.2%, **differs** |" in table
    assert "| c |  |  |  | 5.0 |  | ours alone |" in table
    assert "| d |  | 100.0 |  | 150.0 | +50.0% | an estimate |" in table
    assert "| e |  |  | 10.0 | 10.0 | +0.0%, matches |" in table
    assert "somebody's paper" in table
    assert tally([report]).startswith(  # kinds without a number are left out
        "2 printed in the paper (1 of 2 checked match); 1 measured by the authors (1 only shown, 0 within 10 %); 1 by"
    )
