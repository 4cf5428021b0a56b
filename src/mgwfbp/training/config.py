"""What a run is: every option with its default, checked once."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from mgwfbp.errors import UserError, unknown_name

TRANSPORTS = ("auto", "host", "staged", "device", "device-blocking")  # of comm/choose.py
NEEDS_ALL_SUMS = (
    "updates a layer before all sums are known, which --clip-norm and --on-nan skip need; use sharded, optimal or best"
)


@dataclass(frozen=True)
class Config:
    """The options of `mgwfbp train`; config.json in the run folder holds them as they were used.

    `network` is the SPEC of a network to emulate (None: messages take what they take); `replan` is auto, never or a
    number of iterations. `batch_size` is per rank; `global_batch_size`, if given, is what all ranks share instead, and
    need not divide by their number. `iterations` ends the run before its `epochs` are over. `shift` and `flip` augment
    the training images, `label_smoothing` is a share of the target; `on_bad_image` is stop or skip.
    `profile_iterations` run unmerged before the plan; `log_every` is how many iterations pass between two progress
    lines; `timeline_iterations` is how many planned iterations the timeline shows. Every `checkpoint_every` iterations
    (every epoch by default) a checkpoint is written, the newest `keep_checkpoints` stay; `resume` is a folder that has
    some, or auto. A rank on which nothing goes on for `stall_warn` seconds says so, after `stall_abort` it ends the job
    (0: never). `threads` are BLAS threads a rank (the rank's share of the cores by default), `decode_threads` those
    that decode images (as many, 4 at most), `kernels` the kernel set (the fastest that is installed). On GPUs `math` is
    fp32 or tf32, `share_gpu` lets ranks share one, and `transport` is how gradients travel (comm/choose.py).
    """

    model: str
    data: str = "mnist5k"
    data_dir: str | None = None
    out: str | None = None
    overwrite: bool = False
    schedule: str = "optimal"
    network: str | None = None
    replan: str = "auto"
    epochs: int = 3
    iterations: int | None = None
    batch_size: int = 32
    global_batch_size: int | None = None
    lr: float = 0.02
    lr_policy: str = "poly"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    nesterov: bool = False
    clip_norm: float | None = None
    on_nan: str = "stop"
    shift: int = 0
    flip: bool = False
    label_smoothing: float = 0.0
    on_bad_image: str = "stop"
    seed: int = 1
    profile_iterations: int = 10
    log_every: int = 20
    timeline_iterations: int = 20
    checkpoint_every: int | None = None
    keep_checkpoints: int = 3
    resume: str | None = None
    stall_warn: float = 30.0
    stall_abort: float = 300.0
    threads: int | None = None
    decode_threads: int | None = None
    kernels: str | None = None
    math: str = "fp32"
    share_gpu: bool = False
    transport: str = "auto"

    def __post_init__(self) -> None:
        at_least = {
            "epochs": 1,
            "iterations": 1,
            "batch_size": 1,
            "global_batch_size": 1,
            "shift": 0,
            "seed": 0,
            "profile_iterations": 2,
            "log_every": 1,
            "timeline_iterations": 0,
            "checkpoint_every": 1,
            "keep_checkpoints": 1,
            "threads": 1,
            "decode_threads": 1,
        }
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"--{name.replace('_', '-')} must be {least} or more, got {value}")
        check_replan(self.replan)
        if self.transport not in TRANSPORTS:
            raise unknown_name("transport", self.transport, TRANSPORTS)
        if self.math not in ("fp32", "tf32"):
            raise unknown_name("math", self.math, ["fp32", "tf32"])
        if self.seed >= 2**63:
            raise UserError(f"--seed must be below 2^63, got {self.seed}")
        if not 0 <= self.label_smoothing < 1:
            raise UserError(f"--label-smoothing must be at least 0 and below 1, got {self.label_smoothing}")
        if self.on_bad_image not in ("stop", "skip"):
            raise unknown_name("answer to a bad image", self.on_bad_image, ["skip", "stop"])
        if self.on_nan not in ("stop", "skip"):
            raise unknown_name("answer to NaN", self.on_nan, ["skip", "stop"])
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise UserError(f"--clip-norm must be a finite number above 0, got {self.clip_norm}")
        for name in ("lr", "momentum", "weight_decay", "stall_warn", "stall_abort"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise UserError(f"--{name.replace('_', '-')} must be a finite number ≥ 0, got {value}")

        if self.schedule == "pipelined" and self.needs_all_sums:
            raise UserError(f"--schedule pipelined: {NEEDS_ALL_SUMS}")

    @property
    def needs_all_sums(self) -> bool:
        """Whether no parameter may be updated before every gradient's sum is known."""
        return self.clip_norm is not None or self.on_nan == "skip"

    @property
    def may_shard(self) -> bool:
        """Whether the schedule may be one of reduce-scatters and all-gathers, whose costs are then measured, too."""
        return self.schedule in ("sharded", "best") or self.schedule.startswith("dear:")

    def global_batch(self, ranks: int) -> int:
        """Samples in an iteration on `ranks` ranks. Raises UserError if some rank would never get one."""
        if self.global_batch_size is None:
            return self.batch_size * ranks
        if self.global_batch_size < ranks:
            raise UserError(
                f"a global batch of {self.global_batch_size} is too small for {ranks} ranks: each needs a sample; "
                f"use --global-batch-size {ranks} or more, or fewer ranks"
            )
        return self.global_batch_size

    def total_iterations(self, samples: int, global_batch: int) -> int:
        """Iterations of the run on `samples` training samples."""
        return min(self.epochs * ceil(samples / global_batch), self.iterations or 10**18)

    def to_dict(self) -> dict[str, Any]:
        """The options as a JSON object."""
        return asdict(self)


def check_replan(when: str) -> int | None:
    """The number of iterations in `--replan N`; None for auto and never. Raises UserError for anything else."""
    if when in ("auto", "never"):
        return None
    if not when.isdecimal() or not 1 <= int(when) < 10**9:
        raise UserError(f"--replan {when}: must be auto, never or a number of iterations")
    return int(when)
