"""Which GPU is this rank's? Decided from what all ranks of a machine see: no launcher's variable tells it alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from mgwfbp.comm.world import World
from mgwfbp.errors import UserError


def visible_devices(cupy: Any = None, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The devices that this process may use, by names that mean the same device in every process of the machine.

    With `cupy` (the module, a driver being there) these are the places on the PCI bus and the UUIDs: CuPy cuts a UUID
    off at its first zero byte, or reads on behind its 16, so it is not enough. Without `cupy` they are the words of
    CUDA_VISIBLE_DEVICES, which say less: where Slurm shuts a task off from the others' GPUs, each calls its own one 0.
    """
    if cupy is None:
        return tuple(word.strip() for word in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip())
    runtime = cupy.cuda.runtime
    return tuple(
        f"{runtime.deviceGetPCIBusId(index)} {runtime.getDeviceProperties(index)['uuid'][:16].hex()}"
        for index in range(runtime.getDeviceCount())
    )


def choose_device(world: World, visible: Sequence[str], share: bool = False) -> int:
    """The place in `visible` of this rank's device, which is no other rank's unless `share`. Collective.

    Raises SharedError on all ranks if `placements` finds none on one machine.
    """
    everyone = world.node_gather(tuple(visible))
    places: list[int] = []
    with world.together():
        places = placements(everyone, share)
    return places[world.local_rank]


def use_own_device(world: World, wanted: bool, share: bool = False) -> str | None:
    """Make this rank's GPU CuPy's current one, and say which; None if not every rank has one and `wanted` it.

    Collective. Raises SharedError as `choose_device` does.
    """
    cupy = _cupy() if wanted else None
    if not all(world.comm.allgather(cupy is not None)) or cupy is None:
        return None
    place = choose_device(world, visible_devices(cupy), share)
    cupy.cuda.Device(place).use()
    return f"GPU {place}"


def devices_here() -> tuple[str, ...]:
    """`visible_devices` of this process, as CuPy has them if it can ask."""
    return visible_devices(_cupy())


def _cupy() -> Any:
    """The module, if it is installed and finds a GPU."""
    if find_spec("cupy") is None:
        return None
    try:
        import cupy

        return cupy if cupy.is_available() else None
    except Exception:  # the kernel set says what is wrong with it
        return None


def placements(visible: Sequence[Sequence[str]], share: bool = False) -> list[int]:
    """For each local rank the place of its device among `visible[local rank]`, the devices that it sees.

    Each takes the first that the fewest before it took. So where all see all devices (--gpus-per-node) local rank i
    gets the i-th, where each sees its own (--gpus-per-task) its first, and with `share` more ranks than devices are
    spread evenly. Raises UserError where a rank sees none, or where two would hold the same device without `share`.
    """
    blind = [rank for rank, devices in enumerate(visible) if not devices]
    if blind:
        raise UserError(
            f"local rank {blind[0]} sees no GPU; ask Slurm for them (--gpus-per-node={len(visible)}), "
            "or look at CUDA_VISIBLE_DEVICES and nvidia-smi"
        )
    users: Counter[str] = Counter()
    places = []
    for devices in visible:
        place = min(range(len(devices)), key=lambda index: users[devices[index]])
        users[devices[place]] += 1
        places.append(place)
    if not share and len(users) < len(visible):
        raise UserError(
            f"{len(visible)} ranks on this machine, but {len(users)} GPU{'s' * (len(users) > 1)} for them "
            f"({', '.join(users)}); start fewer ranks, ask for more with --gpus-per-node={len(visible)} "
            "(--gpus-per-task does not work with mpirun), or share them with --share-gpu"
        )
    return places
