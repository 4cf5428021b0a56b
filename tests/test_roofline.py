"""Estimated layer times: operations against the published counts, shapes of the result, device files."""

from __future__ import annotations

import pytest

from mgwfbp.bench.roofline import Device, _forward, devices, estimate, load_device
from mgwfbp.errors import UserError
from mgwfbp.models import build
from mgwfbp.net.layers import Conv2d, Linear


@pytest.mark.parametrize(
    ("name", "published"),  # multiply-adds of one image, He et al. 2016, table 1
    [("resnet18", 1.8e9), ("resnet34", 3.6e9), ("resnet50", 3.8e9), ("resnet101", 7.6e9), ("resnet152", 11.3e9)],
)
def test_operations_of_residual_nets_are_the_papers(name, published):
    net = build(name)
    total = 0.0
    for layer, sources, out in zip(net.layers, net.sources, net.shapes[1:], strict=True):
        if isinstance(layer, Conv2d | Linear):
            total += _forward(layer, [net.shapes[source] for source in sources], out, 1)[0]
    assert total / 2 == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize("device", devices())
def test_an_estimate_is_a_whole_workload_and_grows_with_the_batch(device):
    net = build("resnet50")
    small, large = (estimate(net, batch, load_device(device)) for batch in (8, 64))
    assert [layer.name for layer in small.layers] == [layer.name for layer in net.learnable]
    assert sum(layer.parameters for layer in small.layers) == 25_557_032
    assert all(layer.nbytes % 256 == 0 and layer.nbytes >= 4 * layer.parameters for layer in small.layers)
    assert small.source.startswith("estimate, not measured")
    assert 4 < large.backward_s / small.backward_s < 8.1
    assert 1.5 < large.backward_s / large.forward_s < 2.5


def test_faster_devices_are_faster_and_totals_are_kept():
    net = build("resnet50")
    seconds = {name: estimate(net, 32, load_device(name)).backward_s for name in devices()}
    assert seconds["k80"] > seconds["p100"] > seconds["v100"] > seconds["h100"]
    work = estimate(net, 64, load_device("k80"))
    assert work.forward_s + work.backward_s == pytest.approx(64 / 76.85)
    assert "scaled to a measured total" in work.source


def test_a_kernel_takes_the_longer_of_its_two_limits():
    device = Device("d", "", 1e12, 1e9, 0.5, 0.5, 1e-6)
    assert device.seconds(1e9, 1) == pytest.approx(2e-3 + 1e-6)
    assert device.seconds(1, 1e6) == pytest.approx(2e-3 + 1e-6)


GOOD = "peak_flops = 1e12\nbandwidth = 1e11\nflops_efficiency = 0.5\nbandwidth_efficiency = 0.5\noverhead_s = 1e-6\n"


def test_a_device_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD + "[totals.lenet]\nbatch_size = 10\nseconds = 2.0\n")
    work = estimate(build("lenet"), 5, load_device(str(path)))
    assert work.forward_s + work.backward_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("peak_flops = ", "not TOML"),
        (GOOD.replace("bandwidth = 1e11\n", ""), '"bandwidth" is missing'),
        (GOOD.replace("1e11", "0"), '"bandwidth" must be above 0'),
        (GOOD.replace("1e11", "'fast'"), '"bandwidth" must be a number'),
        (GOOD.replace("1e11", "-1"), '"bandwidth" must be a finite number'),
        (GOOD + "totals = 3\n", "must be tables"),
        (GOOD + "[totals.lenet]\nseconds = 1\n", 'totals.lenet: "batch_size" is missing'),
        (GOOD + "[totals.lenet]\nseconds = 0\nbatch_size = 1\n", '"seconds" must be above 0'),
    ],
)
def test_bad_device_files(tmp_path, text, says):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=f"device file .*{says}"):
        load_device(str(path))


def test_unknown_devices():
    with pytest.raises(UserError, match="did you mean 'v100'"):
        load_device("v10")
    with pytest.raises(UserError, match="cannot be read"):
        load_device("nowhere.toml")
