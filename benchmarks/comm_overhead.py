"""What the comm thread adds to a message: mpirun -n 2 python benchmarks/comm_overhead.py

While the main thread multiplies matrices, messages of several sizes go three ways, in turn:
  bare     a thread calls Iallreduce and tests it, sleeping in between, and does nothing else
  woken    the same thread, but the main thread says when: by an empty queue, the cheapest that Python has
  bucket   the main thread announces a layer; the comm thread wakes, sends its slice, and reports it
A message lasts from when the last rank has begun (bare), said so (woken) or announced (bucket) until this rank has the
sum. Rank 0 prints medians over all messages of both ranks, then how far `bucket` is above `bare` and above `woken`,
with the quartiles of that over the rounds. The first difference holds the waking of a thread on a busy core, which is
the operating system's; the second is what our own code adds.
"""

import threading
import time
from queue import SimpleQueue

import numpy as np

from mgwfbp.comm import CommThread, HostTransport, World, sharpen_sleeps
from mgwfbp.kernels import threads
from mgwfbp.net import Arena, LayerSpec
from mgwfbp.schedule import unmerged

SIZES = (256, 16 << 10, 256 << 10, 4 << 20)
MESSAGES, ROUNDS = 24, 9


def main() -> None:
    world = World(command="comm_overhead")
    matrix = np.ones((256, 256), np.float32)  # 0.5 ms: layers announce between two products
    print_head(world)
    with threads(1):
        for size in SIZES:
            arena = Arena([LayerSpec(f"l{i}", [("w", (size // 4,))]) for i in range(MESSAGES)])
            gap = 2e-3 + size * 2e-9  # long enough for the message before to end
            bare_comm, comm = world.comm.Dup(), CommThread(world, arena)
            medians = []
            for number in range(ROUNDS + 1):
                transport = HostTransport(bare_comm)
                lasted = (
                    bare(world, transport, arena, matrix, gap),
                    woken(world, transport, arena, matrix, gap),
                    bucket(world, comm, matrix, gap),
                )
                if number:
                    medians.append([np.median(way) for way in lasted])
            comm.close()
            report(world, size, np.array(medians) * 1e-3)


def work(matrix: np.ndarray, seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        matrix @ matrix


def bare(world: World, transport: HostTransport, arena: Arena, matrix: np.ndarray, gap: float) -> np.ndarray:
    began, ended = [], []
    rng = np.random.default_rng(world.rank)

    def send() -> None:
        sharpen_sleeps()
        for layer in range(MESSAGES):
            time.sleep(gap + rng.uniform(0, 5e-4))  # ranks are never quite together
            began.append(time.perf_counter_ns())
            transport.all_reduce(arena.gradients[arena.slice_of(layer, layer)])
            ended.append(time.perf_counter_ns())

    world.comm.Barrier()
    thread = threading.Thread(target=send)
    thread.start()
    while thread.is_alive():
        work(matrix, 1e-3)
    return durations(world, began, ended)


def woken(world: World, transport: HostTransport, arena: Arena, matrix: np.ndarray, gap: float) -> np.ndarray:
    said, ended = [], []
    rng = np.random.default_rng(world.rank)
    queue: SimpleQueue[None] = SimpleQueue()

    def send() -> None:
        sharpen_sleeps()
        for layer in range(MESSAGES):
            queue.get()
            transport.all_reduce(arena.gradients[arena.slice_of(layer, layer)])
            ended.append(time.perf_counter_ns())

    world.comm.Barrier()
    thread = threading.Thread(target=send)
    thread.start()
    for _ in range(MESSAGES):
        work(matrix, gap + rng.uniform(0, 5e-4))
        said.append(time.perf_counter_ns())
        queue.put(None)
    thread.join()
    return durations(world, said, ended)


def bucket(world: World, comm: CommThread, matrix: np.ndarray, gap: float) -> np.ndarray:
    comm.begin(unmerged(MESSAGES))
    rng = np.random.default_rng(world.rank)
    world.comm.Barrier()
    for layer in range(MESSAGES):
        work(matrix, gap + rng.uniform(0, 5e-4))
        comm.gradient_ready(layer)
    sent = list(comm.completed())
    return durations(world, [s.ready_ns for s in sent], [s.end_ns for s in sent])


def durations(world: World, began: list[int], ended: list[int]) -> np.ndarray:
    """Of all ranks' messages, in ns; all ranks are on one machine and share its clock."""
    last = np.array(world.comm.allgather(began)).max(axis=0)
    return np.concatenate(world.comm.allgather(np.array(ended) - last))


def print_head(world: World) -> None:
    if world.rank == 0:
        print(f"{world.size} ranks, {MESSAGES} messages, {ROUNDS} rounds in turn; µs")
        print(f"{'bytes':>10}  {'bare':>7}  {'woken':>7}  {'bucket':>7}  {'over bare':>22}  {'over woken':>22}")


def report(world: World, size: int, medians: np.ndarray) -> None:
    if world.rank == 0:
        middle = "  ".join(f"{us:>7.1f}" for us in np.median(medians, axis=0))
        print(f"{size:>10,}  {middle}  {above(medians, 0):>22}  {above(medians, 1):>22}", flush=True)


def above(medians: np.ndarray, way: int) -> str:
    low, middle, high = np.quantile(medians[:, 2] - medians[:, way], (0.25, 0.5, 0.75))
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
