"""The house: which room may know which, no circles, and the sizes that a reader is promised."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGE = SOURCE / "mgwfbp"
PAGE = (SOURCE.parent / "docs" / "architecture.md").read_text("utf-8")
LEAVES = {"errors", "fields", "files", "plugins", "version", "mgwfbp"}


def module_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in PACKAGE.rglob("*.py")}


def imports(path):
    """The modules that a file imports, wherever in it: ours by their full names, others by their first."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                found.add(whole if whole in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
    return found


EDGES = {module: imports(path) for module, path in MODULES.items()}


def room(module):
    return [*module.split("."), "mgwfbp"][1]


def drawn():
    """room -> the rooms that the drawing in docs/architecture.md lets it import."""
    lines = re.findall(r"^    (\w+) +→ ?(.*)$", PAGE, re.MULTILINE)
    return {name: set(re.findall(r"\w+", rest)) for name, rest in lines}


def test_the_drawing_has_every_room_and_its_arrows_run_downwards():
    rooms = {room(module) for module in MODULES} - LEAVES - {"__main__"}
    assert set(drawn()) == rooms
    order = list(drawn())
    for name, others in drawn().items():
        assert others <= rooms
        for other in others:
            below = order.index(other) > order.index(name)
            assert below, f"{name} → {other} runs upwards"


def test_the_imports_are_those_of_the_drawing():
    found = defaultdict(set)
    for module, others in EDGES.items():
        for other in others:
            if other in MODULES and module != "mgwfbp" and room(other) not in {room(module), *LEAVES}:
                found[room(module)].add(room(other))
    for name, allowed in drawn().items():
        assert found[name] == allowed, name


def test_no_two_files_know_each_other_in_a_circle():
    state = {}

    def visit(module, path):
        assert state.get(module) != "open", " → ".join([*path, module])
        if module in state or module not in EDGES:
            return
        state[module] = "open"
        for other in EDGES[module]:
            if other in MODULES and other != module:
                visit(other, [*path, module])
        state[module] = "done"

    for module in EDGES:
        visit(module, [])


@pytest.mark.parametrize(
    ("library", "rooms"), [("mpi4py", {"comm", "bench"}), ("cupy", {"kernels", "comm"}), ("click", {"cli"})]
)
def test_a_library_is_imported_where_it_belongs(library, rooms):
    assert {room(module) for module, others in EDGES.items() if library in {o.split(".")[0] for o in others}} <= rooms


def test_the_training_room_is_read_in_one_sitting():
    files = list((PACKAGE / "train").glob("*.py"))
    assert len(files) <= 10
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) <= 1000


def test_the_loop_the_step_and_the_modes_are_three_screens():
    """A screen has 60 lines: the loop itself, the step, and each mode fit into one, without their docstrings."""
    for name, thing, most in (("loop", "fit", 30), ("step", "train_step", 30), ("exchange", "Pipelined", 30)):
        tree = ast.parse((PACKAGE / "train" / f"{name}.py").read_text("utf-8"))
        (node,) = [node for node in ast.walk(tree) if getattr(node, "name", None) == thing]
        assert node.end_lineno - node.lineno < most, thing
    assert len((PACKAGE / "train" / "exchange.py").read_text("utf-8").splitlines()) <= 200
