"""WORKLOAD files and JSON reading and writing."""

from __future__ import annotations

import json
import os

import pytest

from mgwfbp.errors import UserError, unknown_name
from mgwfbp.files import read_json, write_json
from mgwfbp.schedule import LayerProfile, Workload, workload_from_dict, workload_to_dict

WORK = Workload("net", 32, 0.5, (LayerProfile("fc", 10, 256, 0.25), LayerProfile("conv", 5, 256, 0.5)), "by hand")


def test_a_workload_survives_its_file(tmp_path):
    write_json(tmp_path / "w.json", workload_to_dict(WORK))
    assert workload_from_dict(read_json(tmp_path / "w.json", "workload file"), "w.json") == WORK


def test_derived_figures():
    assert WORK.backward_s == 0.75
    assert WORK.nbytes == 512
    assert WORK.ready_s() == [0.25, 0.75]
    assert WORK.prefix_nbytes() == [0, 256, 512]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layers": []}, "at least one layer"),
        ({"layers": "none"}, "at least one layer"),
        ({"layers": [1]}, "layer 0: a JSON object was expected"),
        (
            {"layers": [{"parameters": 1, "nbytes": -4, "backward_s": 1}]},
            'layer 0: "nbytes" must be a finite number ≥ 0',
        ),
        ({"layers": [{"parameters": 1, "nbytes": 4}]}, 'layer 0: "backward_s" is missing'),
        ({"layers": [{"parameters": 1.5, "nbytes": 4, "backward_s": 1}]}, "whole number"),
        ({"forward_s": -1}, '"forward_s" must be a finite number ≥ 0'),
        ({"forward_s": "fast"}, '"forward_s" must be a number'),
        ({"batch_size": float("nan")}, "finite"),
    ],
)
def test_bad_workloads(change, says):
    with pytest.raises(UserError, match=f"^w.json: .*{says}"):
        workload_from_dict({**workload_to_dict(WORK), **change}, "w.json")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "not JSON .line 1"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"[1]", "found a list"),
        (b"[" * 10**5, "nested"),
    ],
)
def test_bad_json(tmp_path, content, says):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=says):
        read_json(path, "network file")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(UserError, match="cannot be read .No such file"):
        read_json(tmp_path / "none.json", "network file")
    with pytest.raises(UserError, match="cannot be written .No such file"):
        write_json(tmp_path / "none" / "x.json", {})


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": object()})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["x.json"]


def test_links_are_followed_and_devices_written_into(tmp_path):
    (tmp_path / "link.json").symlink_to("real.json")
    write_json(tmp_path / "link.json", {"a": 1})
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text()) == {"a": 1}
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_json(tmp_path / "pipe", {"b": 2})
    assert json.loads(os.read(reader, 100)) == {"b": 2}
    os.close(reader)


def test_values_that_json_does_not_know_become_null(tmp_path):
    write_json(tmp_path / "x.json", {"loss": float("nan"), "rows": [float("inf"), 1.0]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"loss": None, "rows": [None, 1.0]}


def test_unknown_names_suggest_only_what_is_near():
    assert "did you mean 'lenet'?" in str(unknown_name("model", "LeNet5", ["lenet", "mlp"]))
    assert "did you mean" not in str(unknown_name("model", "zzzzzz", ["lenet", "mlp"]))
