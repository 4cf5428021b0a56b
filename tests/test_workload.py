"""WORKLOAD files and JSON reading and writing."""

from __future__ import annotations

import json
import os

import pytest

from mgwfbp.errors import UserError, unknown_name
from mgwfbp.files import read_json, write_json
from mgwfbp.schedule import (
    AffineCost,
    LayerProfile,
    Network,
    Workload,
    network_of,
    workload_from_dict,
    workload_to_dict,
)
from mgwfbp.simulate.specs import cluster_from_spec, cost_from_spec, workload_from_spec

WORK = Workload("net", 32, 0.5, (LayerProfile("fc", 10, 256, 0.25), LayerProfile("conv", 5, 256, 0.5)), "by hand")


def test_a_workload_survives_its_file(tmp_path):
    write_json(tmp_path / "w.json", workload_to_dict(WORK))
    assert workload_from_dict(read_json(tmp_path / "w.json", "workload file"), "w.json") == WORK


@pytest.mark.parametrize("name", ["lenet", "runs/lr=0.1", "v1.0", "k80:8", "run,a=1"])
def test_a_run_folder_stands_for_its_workload_and_its_network(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(UserError, match=rf"^workload file {name}/workload.json: cannot be read"):
        workload_from_spec(name)
    with pytest.raises(UserError, match=rf"^network file {name}/network.json: cannot be read"):
        cost_from_spec(name)
    write_json(f"{name}/workload.json", workload_to_dict(WORK))
    write_json(f"{name}/network.json", network_of(AffineCost(1e-3, 1e-9), [1, 1000], "here", 2).to_dict())
    for spec in (name, f"{name}/", str(tmp_path / name)):
        assert workload_from_spec(spec) == WORK
        assert cost_from_spec(spec) == cost_from_spec(f"{name}/network.json")


def test_a_file_of_several_networks_is_asked_for_one_of_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    several = {"networks": [{"ranks": ranks, "a_s": ranks, "b_s_per_byte": 0} for ranks in (4, 8)]}
    for name in ("nets.json", "nets", "odd:4"):
        write_json(name, several)
        assert cost_from_spec(f"{name}:8") == AffineCost(8, 0)
        assert cluster_from_spec(f"{name}:4").nodes == 4
        for spec, says in [
            (name, "number of ranks"),
            (f"{name}:", "number of ranks"),
            (f"{name}:5", "4, 8 ranks only"),
        ]:
            with pytest.raises(UserError, match=says):
                cost_from_spec(spec)


def test_a_network_says_where_it_was_measured_in_plain_words():
    network = network_of(AffineCost(1, 1), [1, 2], "measured: 2 ranks, MPICH Version:      5.0.2\n", 2)
    assert network.source == network.to_dict()["source"] == "measured: 2 ranks, MPICH Version: 5.0.2"
    assert Network.from_dict(network.to_dict()) == network


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
