"""Which rank gets which GPU, for every way that a job can ask for them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgwfbp.comm import placements, visible_devices
from mgwfbp.errors import UserError

BOTH = ("0", "1")


@pytest.mark.parametrize(
    ("form", "visible", "places"),
    [
        ("srun --gpus-per-task=1", [("0",), ("1",)], [0, 0]),
        ("srun --gres=gpu:2, --gpus=2, --gpus-per-node=2", [BOTH, BOTH], [0, 1]),
        ("srun --gpus-per-task=2", [BOTH, ("2", "3")], [0, 0]),
        ("srun --gpu-bind by socket", [BOTH, BOTH, ("2", "3"), ("2", "3")], [0, 1, 0, 1]),
        ("one rank, one GPU", [("0",)], [0]),
        ("one rank, several GPUs", [("3", "1")], [0]),
        ("more GPUs than ranks", [("0", "1", "2", "3")] * 2, [0, 1]),
        ("an order of the user's own", [("1", "0"), ("1", "0")], [0, 1]),
    ],
)
def test_every_rank_has_a_gpu_of_its_own(form, visible, places):
    assert placements(visible) == places
    assert placements(visible, share=True) == places


@pytest.mark.parametrize(
    ("form", "visible", "says"),
    [
        ("Open MPI's mpirun in a job with --gpus-per-task=1", [("0",), ("0",)], "2 ranks on this machine, but 1 GPU "),
        ("four ranks, --gpus-per-node=2", [BOTH] * 4, "4 ranks on this machine, but 2 GPUs for them (0, 1)"),
    ],
)
def test_two_ranks_never_hold_one_gpu_unless_they_share(form, visible, says):
    with pytest.raises(UserError, match="--share-gpu") as caught:
        placements(visible)
    assert says in str(caught.value)
    assert placements(visible, share=True) == [rank % len(visible[0]) for rank in range(len(visible))]


@pytest.mark.parametrize("visible", [[()], [("0",), ()]])
@pytest.mark.parametrize("share", [False, True])
def test_a_rank_without_a_gpu_says_how_to_ask_for_one(visible, share):
    with pytest.raises(UserError, match=f"sees no GPU.*--gpus-per-node={len(visible)}"):
        placements(visible, share)


machines = st.integers(1, 4).flatmap(
    lambda sets: st.lists(st.integers(0, sets - 1), min_size=1, max_size=8).map(
        lambda ranks: [tuple(f"{which}.{gpu}" for gpu in range(which + 1)) for which in ranks]
    )
)


@given(machines)
def test_a_gpu_for_each_rank_is_found_where_there_is_one_and_shared_evenly_where_not(visible):
    """Ranks that see the same devices are a group, and groups see nothing of each other: what binding can make."""
    held = [devices[place] for devices, place in zip(visible, placements(visible, share=True), strict=True)]
    for devices in set(visible):
        users = [held.count(device) for device in devices]
        assert max(users) - min(users) <= 1
    if any(visible.count(devices) > len(devices) for devices in visible):
        with pytest.raises(UserError, match=f"{len(visible)} ranks"):
            placements(visible)
    else:
        assert placements(visible) == placements(visible, share=True)
        assert len(set(held)) == len(held)


def test_what_a_process_sees():
    assert visible_devices(environment={}) == ()
    assert visible_devices(environment={"CUDA_VISIBLE_DEVICES": "1, GPU-8f"}) == ("1", "GPU-8f")
    runtime = SimpleNamespace(
        getDeviceCount=lambda: 2,
        getDeviceProperties=lambda i: {"uuid": b"\xab"},  # the second byte is 0, and CuPy stops there
        deviceGetPCIBusId=lambda i: f"0000:{i}b:00.0",
    )
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    assert visible_devices(cupy, {"CUDA_VISIBLE_DEVICES": "5,6"}) == ("0000:0b:00.0 ab", "0000:1b:00.0 ab")
    runtime.getDeviceProperties = lambda i: {"uuid": bytes(range(1, 17)) + b"luid of this process"}
    assert visible_devices(cupy)[1] == "0000:1b:00.0 " + bytes(range(1, 17)).hex()
