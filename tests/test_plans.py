"""Which of cuDNN's plans a convolution gets, without cuDNN: the fastest, and the same in the next run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mgwfbp.kernels.gpu import cudnn
from mgwfbp.kernels.gpu.plans import ROUNDS, Device

SHAPE = cudnn.Shape((2, 8, 8, 4), (3, 3, 4, 6), (1, 1), (1, 1), 1, "float32", "fp32")
POINTERS = {cudnn.FIRST: 16, cudnn.SECOND: 32, cudnn.RESULT: 48}


class Refused(Exception):
    """Stands in for cudnnGraphNotSupportedError."""


class Graph:
    """Stands in for cudnn.pygraph: calls are written down, and return what can be called on."""

    def __init__(self, library):
        self.library = library

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.library.calls.append((name, arguments, options))
            if name == self.library.refuses:
                raise Refused("No execution plans support the graph.\nmore")
            return self

        return call

    def get_execution_plan_count(self):
        return len(self.library.plans)

    def build_plan_at_index(self, place):
        if self.library.plans[place]["barred"]:
            raise Refused("Deselecting execution plan")

    def get_workspace_size_plan_at_index(self, place):
        return self.library.plans[place]["workspace"]

    def get_plan_name_at_index(self, place):
        return self.library.plans[place]["name"]

    def execute_plan_at_index(self, pointers, workspace, place, handle):
        plan = self.library.plans[place]
        if plan["fault"]:
            raise plan["fault"]
        self.library.clock += plan["seconds"]
        self.library.started.append((plan["name"], pointers, workspace, handle))


class Library:
    """Stands in for cudnn and cupy, as far as plans.py calls them; a card whose clock goes on as plans run."""

    def __init__(self):
        self.calls, self.started, self.buffers, self.plans = [], [], [], []
        self.refuses, self.clock, self.stream = None, 0.0, 7

    def plan(self, name, seconds=1.0, workspace=100, barred=False, fault=None):
        self.plans.append({"name": name, "seconds": seconds, "workspace": workspace, "barred": barred, "fault": fault})

    @property
    def cudnn(self):
        return SimpleNamespace(
            __version__="1.23",
            backend_version=lambda: 92801,
            create_handle=lambda: 42,
            set_stream=lambda handle, stream: self.calls.append(("set_stream", (handle, stream), {})),
            pygraph=lambda **options: self.calls.append(("pygraph", (), options)) or Graph(self),
            data_type=SimpleNamespace(FLOAT="float", DOUBLE="double"),
            heur_mode=SimpleNamespace(A="A", FALLBACK="fallback"),
            numerical_note=SimpleNamespace(NONDETERMINISTIC="varies", TENSOR_CORE="tensor", DOWN_CONVERT_INPUTS="down"),
            cudnnGraphNotSupportedError=Refused,
        )

    @property
    def cupy(self):
        library = self

        class Event:
            def __init__(self, block):
                assert block  # who waits must not take the comm thread's core

            def record(self, stream):
                self.at = library.clock

            def synchronize(self):
                pass

        def empty(nbytes, dtype):
            if nbytes > 10**9:
                raise MemoryError
            self.buffers.append(nbytes)
            return SimpleNamespace(nbytes=nbytes, data=SimpleNamespace(ptr=1000 + nbytes))

        cuda = SimpleNamespace(
            Device=lambda: SimpleNamespace(id=1, compute_capability="90"),
            Event=Event,
            get_current_stream=lambda: SimpleNamespace(ptr=self.stream),
            get_elapsed_time=lambda first, last: (last.at - first.at) * 1e3,
            runtime=SimpleNamespace(getDeviceProperties=lambda index: {"name": b"Card 9000"}),
        )
        return SimpleNamespace(cuda=cuda, empty=empty, uint8="uint8")


@pytest.fixture
def library(monkeypatch, tmp_path):
    made = Library()
    monkeypatch.setitem(sys.modules, "cudnn", made.cudnn)
    monkeypatch.setitem(sys.modules, "cupy", made.cupy)
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    return made


def array(pointer):
    copy = None if pointer % 16 == 0 else lambda: array(pointer + 100 - pointer % 4)
    return SimpleNamespace(data=SimpleNamespace(ptr=pointer), copy=copy)


def convolve(device, operation=cudnn.FORWARD, shape=SHAPE, first=16):
    return device.convolve(operation, shape, array(first), array(32), array(48))


def last(library):
    return library.started[-1][0]


def test_plans_are_built_once_and_no_tensor_cores_or_varying_results_are_allowed(library):
    library.plan("only")
    device = Device()
    assert convolve(device)
    names = [name for name, _, _ in library.calls]
    order = ["validate", "build_operation_graph", "create_execution_plans", "deselect_numeric_notes", "check_support"]
    assert [name for name in names if name in order] == order
    called = {name: (arguments, options) for name, arguments, options in library.calls}
    assert called["deselect_numeric_notes"][0] == (["varies", "tensor", "down"],)
    assert called["pygraph"][1]["sm_version"] == 90  # else the frontend looks for a CUDA runtime, which wheels hide
    built = len(library.calls)
    assert convolve(device)
    assert len(library.calls) == built
    convolve(device, shape=SHAPE._replace(math="tf32"))
    assert [arguments for name, arguments, _ in library.calls if name == "deselect_numeric_notes"][1] == (["varies"],)


def test_the_fastest_of_the_first_few_is_taken_and_the_next_run_takes_it_without_a_clock(library):
    library.plan("barred", 0.1, barred=True)
    library.plan("first", 3.0)
    for number in range(cudnn.TRIED - 1):
        library.plan(f"plan {number}", 1.0 if number == 2 else 2.0)
    library.plan("never tried", 0.5)
    device = Device()
    convolve(device)
    assert len(library.started) == ROUNDS * cudnn.TRIED + 1
    assert last(library) == "plan 2"
    library.plans[3]["seconds"] = 0.1  # "plan 1": the card is in another mood
    library.started.clear()
    convolve(device)
    convolve(Device())
    assert {name for name, *_ in library.started} == {"plan 2"}
    assert len(library.started) == 1 + 2
    (kept,) = Path(device.choices.folder).glob("forward-*.json")
    assert device.choices.folder.name == "Card 9000, cuDNN 92801"
    assert json.loads(kept.read_text())["seconds"]["first"] == 3.0


def test_of_two_ranks_that_choose_at_once_the_first_decides(library):
    one, other = Device().choices, Device().choices
    assert one.keep(cudnn.FORWARD, SHAPE, {"a": 1.0, "b": 2.0}) == "a"
    assert other.keep(cudnn.FORWARD, SHAPE, {"a": 3.0, "b": 2.0}) == "a"
    assert other.keep(cudnn.INPUT_GRADIENT, SHAPE, {"a": 3.0, "b": 2.0}) == "b"
    assert other.keep(cudnn.FORWARD, SHAPE, {"c": 3.0}, instead=True) == "c"
    assert len(list(one.folder.iterdir())) == 2


@pytest.mark.parametrize("content", ['{"plan": "gone"}', "{", '{"plan": 3}', "[]"])
def test_a_choice_that_is_no_longer_there_is_made_again(library, content):
    library.plan("a", 1.0)
    library.plan("b", 2.0)
    device = Device()
    convolve(device)
    (kept,) = Path(device.choices.folder).iterdir()
    kept.write_text(content)
    library.plans[0]["seconds"] = 3.0
    convolve(Device())
    assert last(library) == "b"


def test_where_nothing_can_be_kept_that_is_said_and_the_run_goes_on(library, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "file"))
    library.plan("a", 2.0)
    library.plan("b", 1.0)
    assert convolve(Device())
    assert last(library) == "b"
    said = capsys.readouterr().err
    assert "cannot be kept (" in said
    assert "a run that is repeated may differ in the last bits; CUPY_CACHE_DIR names another place" in said
    assert said.count("\n") == 1


def test_a_file_system_without_links_keeps_choices_too(library, monkeypatch):
    monkeypatch.setattr("os.link", lambda *_: os.open("/dev/null/no", 0))
    choices = Device().choices
    assert choices.keep(cudnn.FORWARD, SHAPE, {"a": 1.0, "b": 2.0}) == "a"
    assert choices.keep(cudnn.FORWARD, SHAPE, {"a": 3.0, "b": 2.0}) == "a"
    assert len(list(choices.folder.iterdir())) == 1


def test_a_kept_plan_that_cannot_be_started_is_replaced(library):
    library.plan("a", 1.0)
    library.plan("b", 2.0)
    convolve(Device())
    library.plans[0]["fault"] = RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
    for _ in range(2):
        assert convolve(Device())
        assert last(library) == "b"
    assert len(library.started) == ROUNDS * 2 + 1 + ROUNDS + 1 + 2


def test_a_plan_runs_on_the_current_stream_with_that_streams_workspace(library):
    library.plan("plan", workspace=100)
    device = Device()
    convolve(device)
    library.plans[0]["workspace"] = 500
    convolve(device, cudnn.WEIGHT_GRADIENT)
    library.calls.clear()
    library.started.clear()
    for operation, stream in ((cudnn.FORWARD, 7), (cudnn.FORWARD, 8), (cudnn.WEIGHT_GRADIENT, 8)):
        library.stream = stream
        convolve(device, operation)
    assert library.started == [("plan", POINTERS, 1500, 42), ("plan", POINTERS, 1100, 42), ("plan", POINTERS, 1500, 42)]
    assert library.calls == [("set_stream", (42, 8), {})]
    assert library.buffers == [100, 100, 500, 500, 100, 500]  # first while plans are timed, then for the one taken


def test_what_was_tried_does_not_decide_how_much_memory_is_kept(library):
    library.plan("hungry", 2.0, workspace=5000)
    library.plan("modest", 1.0, workspace=10)
    device = Device()
    convolve(device)
    assert [workspace.nbytes for workspace in device.workspaces.values()] == [10]


def test_a_large_workspace_is_taken_only_where_there_is_no_other(library):
    library.plan("hungry", 0.1, workspace=cudnn.WORKSPACE_NBYTES + 2)
    library.plan("hungry, less", 0.1, workspace=cudnn.WORKSPACE_NBYTES + 1)
    convolve(Device())
    assert last(library) == "hungry, less"
    library.plan("modest", 9.0)
    convolve(Device(), cudnn.INPUT_GRADIENT)
    assert last(library) == "modest"


def test_an_array_that_does_not_begin_on_16_bytes_is_copied(library):
    library.plan("plan")
    convolve(Device(), first=20)  # a slice of the channels, say
    assert library.started[-1][1] == {**POINTERS, cudnn.FIRST: 120}


def test_a_shape_without_a_plan_is_said_once(library, capsys):
    library.refuses = "check_support"
    device = Device()
    for _ in range(2):
        assert not convolve(device, cudnn.INPUT_GRADIENT)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cuDNN has no plan for the input gradient of (3, 3, 4, 6) on (2, 8, 8, 4)" in said
    assert "(No execution plans support the graph.); using matrix products there" in said


@pytest.mark.parametrize("fault", [RuntimeError("CUDNN_STATUS_NOT_SUPPORTED"), ValueError("bad"), MemoryError()])
def test_a_plan_that_is_built_and_cannot_run_is_left_out(library, capsys, fault):
    library.plan("broken", 0.1, fault=fault)
    library.plan("works", 1.0)
    assert convolve(Device())
    assert last(library) == "works"
    library.plans[1]["fault"] = fault
    device = Device()
    for _ in range(2):
        assert not convolve(device, cudnn.WEIGHT_GRADIENT)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"({str(fault) or 'out of memory'}); using matrix products there" in said


def test_a_plan_that_has_run_and_fails_later_ends_the_run(library):
    library.plan("plan")
    device = Device()
    convolve(device)
    library.plans[0]["fault"] = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        convolve(device)


def test_a_library_that_builds_nothing_is_found_out_by_a_probe(library):
    with pytest.raises(RuntimeError, match="there is no plan"):
        Device().probe()
    library.plan("needs a compiler", barred=True)
    with pytest.raises(Refused, match="Deselecting execution plan"):
        Device().probe()
    library.refuses = "build_operation_graph"
    with pytest.raises(Refused, match="No execution plans"):
        Device().probe()
