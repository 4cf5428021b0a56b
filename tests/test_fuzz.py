"""Bad input, widely: generated files and options get a UserError (one line, exit code 2) or a right run, no fault."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat

import click
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from mgwfbp.cli.main import cli
from mgwfbp.data import load
from mgwfbp.errors import UserError
from mgwfbp.files import parse_toml
from mgwfbp.optim.lr import check_lr
from mgwfbp.runs.checkpoint import newest, save
from mgwfbp.runs.config import Config
from mgwfbp.simulate.specs import cost_from_spec, workload_from_spec
from mgwfbp.watch.fault import fault_from_environment

many = settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
few = settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

numbers = st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), st.text(max_size=5))
values = st.recursive(numbers, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))


def one_line_or_right(action, *arguments, **options):
    """The result, or None after a UserError of one line."""
    try:
        return action(*arguments, **options)
    except UserError as mistake:
        if not str(mistake).strip() or "Traceback" in str(mistake):
            raise
        return None


def mutated(data, whole):
    """`whole` with a few bytes changed, cut off, or put in."""
    result = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(0, len(result) - 1)))
        match data.draw(st.sampled_from(["change", "cut", "insert"])):
            case "change" if result:
                result[place] = data.draw(st.integers(0, 255))
            case "cut":
                del result[place:]
            case _:
                result[place:place] = data.draw(st.binary(max_size=6))
    return bytes(result)


LAYER = {"name": "a", "parameters": 3, "nbytes": 12, "backward_s": 1e-3}
WORKLOAD = {"name": "w", "source": "", "batch_size": 2, "forward_s": 1e-3, "layers": [LAYER, LAYER]}
NETWORK = {"source": "", "ranks": 2, "nbytes": [256, 1024], "seconds": [1e-5, 2e-5], "a_s": 1e-5, "b_s_per_byte": 1e-9}


@many
@given(data=st.data())
def test_workload_files(tmp_path, data):
    (tmp_path / "w.json").write_bytes(mutated(data, json.dumps(WORKLOAD).encode()))
    one_line_or_right(workload_from_spec, str(tmp_path / "w.json"))


@many
@given(key=st.sampled_from([*WORKLOAD, *LAYER]), value=values, drop=st.booleans())
def test_workload_values(tmp_path, key, value, drop):
    layer = {k: v for k, v in {**LAYER, key: value}.items() if k in LAYER and not (drop and k == key)}
    work = {**WORKLOAD, "layers": [LAYER, layer], **({key: value} if key in WORKLOAD and key != "name" else {})}
    (tmp_path / "w.json").write_text(json.dumps(work))
    one_line_or_right(workload_from_spec, str(tmp_path / "w.json"))


@many
@given(key=st.sampled_from([*NETWORK, "networks"]), value=values)
def test_network_values(tmp_path, key, value):
    (tmp_path / "n.json").write_text(json.dumps({**NETWORK, key: value}))
    cost = one_line_or_right(cost_from_spec, str(tmp_path / "n.json"))
    if cost is not None:
        assert cost(1000.0) >= 0


@many
@given(
    st.one_of(st.text(max_size=30), st.from_regex(r"(a=[\d.eus-]*,?b?=?[\dns.]*)|(ring:[a-z=\d.,]*)|(k80-10gbe:\d*)"))
)
def test_network_specs(spec):
    one_line_or_right(cost_from_spec, spec.replace("/", "").replace(".json", "") or "x")


@many
@given(st.text(max_size=60))
def test_toml(text):
    one_line_or_right(parse_toml, text, "config file c.toml")


OPTIONS = ["lr", "epochs", "batch_size", "global_batch_size", "seed", "momentum", "replan", "on_nan", "clip_norm"]
OPTIONS += ["label_smoothing", "stall_warn", "shift", "keep_checkpoints", "threads", "on_bad_image"]


@many
@given(name=st.sampled_from(OPTIONS), value=st.one_of(st.integers(), st.floats(), st.text(max_size=8)))
def test_options(name, value):
    kind = type(getattr(Config("mlp"), name) or (0.0 if name == "clip_norm" else 0))
    try:
        value = kind(value)  # as click hands them on
    except (ValueError, OverflowError):
        return
    one_line_or_right(Config, "mlp", **{name: value})


@many
@given(policy=st.text(max_size=25) | st.from_regex(r"(poly|step|multistep|exp|inv|sigmoid):[a-z=\d.,+-]*"))
def test_lr_policies(policy):
    one_line_or_right(check_lr, policy, 0.1, 100)


@many
@given(text=st.text(max_size=30) | st.from_regex(r"rank=\d*,iteration=\w*,kind=[a-z:\d]*"))
def test_faults(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MGWFBP_FAULT", text.replace("\0", "").encode(errors="ignore").decode())
        one_line_or_right(lambda: fault_from_environment(2))


@few
@given(data=st.data())
def test_idx_files(tmp_path, data):
    for prefix in ("train", "t10k"):
        images = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 3]) + bytes(range(18))
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(mutated(data, images))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(mutated(data, bytes([0, 0, 8, 1, 0, 0, 0, 2, 1, 7])))
    one_line_or_right(load, "mnist", str(tmp_path))


@few
@given(data=st.data())
def test_checkpoints(tmp_path, data, capsys):
    place = tmp_path / "checkpoints" / "iteration-00000003"
    place.mkdir(parents=True, exist_ok=True)
    arrays = {"parameters": np.ones(4, np.float32), "velocity": np.ones(4, np.float32), "state": np.ones((1, 2))}
    save_file(arrays, place / "arrays.safetensors")
    record = json.dumps({"iteration": 3, "sha256": "0" * 64, "config": {}}).encode()
    (place / "checkpoint.json").write_bytes(mutated(data, record))
    (place / "arrays.safetensors").write_bytes(mutated(data, (place / "arrays.safetensors").read_bytes()))
    assert one_line_or_right(newest, tmp_path) is None  # the digest is another


WORDS = ["plan", "simulate", "--network", "k80-10gbe", "k80-10gbe:4", "--nodes", "4", "k80-googlenet", "--json"]
WORDS += ["--schedule", "optimal", "bucket:", "--jitter", "-1"]


@few
@given(arguments=st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=7))
def test_command_lines(arguments):
    arguments = [part for part in arguments if not part.startswith(("-o", "--out", "--plot", "--csv"))]
    with contextlib.suppress(UserError, click.ClickException, click.exceptions.NoArgsIsHelpError):
        cli.main(arguments, standalone_mode=False)


def test_a_file_system_that_cannot_flush_folders_is_fine(tmp_path, monkeypatch):
    """CIFS and some FUSE file systems answer EINVAL; a file that cannot be flushed is an error still."""
    arrays = {"parameters": np.zeros(3, np.float32), "state": np.zeros((1, 0), np.float32)}

    def refuse(descriptor, original=os.fsync):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) or refuse.all:
            raise OSError(errno.EINVAL, "Invalid argument")
        original(descriptor)

    refuse.all = False
    monkeypatch.setattr(os, "fsync", refuse)
    save(tmp_path / "checkpoints", 5, arrays, {}, 3)
    assert newest(tmp_path).iteration == 5
    refuse.all = True
    with pytest.raises(UserError, match="cannot be written"):
        save(tmp_path / "checkpoints", 6, arrays, {}, 3)
