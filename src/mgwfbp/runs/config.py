"""What a run is: every option with its default, its meaning and its bounds, written down once.

From these fields follow the options of `mgwfbp train` and their --help, the MGWFBP_* variables, the checks of a config,
what ranks must agree about, and what a run that is resumed may be told otherwise.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mgwfbp.errors import UserError, unknown_name
from mgwfbp.optim import OPTIMIZERS
from mgwfbp.schedule import ALGORITHMS, NEEDS_ALL_SUMS, WIRES, check_replan

# What an option decides. A run that is resumed with another value: is another run (unless --change says that this is
# meant); goes on longer; needs a new plan; is the same.
WEIGHTS, LENGTH, PLAN, NOTHING = "weights", "length", "plan", "nothing"


def option(
    default: Any,
    help: str,
    *,
    decides: str = WEIGHTS,
    local: bool = False,
    least: float | None = None,
    below: float | None = None,
    above: float | None = None,
    choices: Sequence[str] = (),
    metavar: str | None = None,
) -> Any:
    """A field of Config. `local` ones may differ from rank to rank: where files lie, how many threads work.

    A value must be at least `least`, less than `below` and more than `above`, if these are given, or one of `choices`.
    """
    return field(
        default=default,
        metadata={
            "help": help, "decides": decides, "local": local, "least": least, "below": below, "above": above,
            "choices": tuple(choices), "metavar": metavar,
        },
    )  # fmt: skip


@dataclass(frozen=True)
class Config:
    """The options of `mgwfbp train`; config.json in the run folder holds them as they were used.

    Raises UserError for a value out of its bounds, and for options that do not go together.
    """

    model: str
    data: str = option(
        "mnist5k",
        "mnist5k, mnist (:32 pads to 32×32), cifar10, images:SIZE, arrays:FILE.npz or "
        "synthetic:HEIGHTxWIDTHxCHANNELSxCLASSES.",
    )
    data_dir: str | None = option(
        None, "Where the files are: of mnist, cifar10, or train/CLASS/*.jpg, val/… .",
        decides=NOTHING, local=True, metavar="FOLDER",
    )  # fmt: skip
    out: str | None = option(
        None, "The run folder.  [default: runs/MODEL-DATE-TIME]", decides=NOTHING, local=True, metavar="FOLDER"
    )
    overwrite: bool = option(False, "Replace another run's files in the run folder.", decides=NOTHING, local=True)
    schedule: str = option(
        "optimal",
        "wfbp, single, mgwfbp, optimal, pipelined, sharded, best, bucket:SIZE or dear:SIZE.",
        decides=PLAN,
    )
    network: str | None = option(
        None, "Let messages take as long as on this network (k80-10gbe:64, a=…,b=…).",
        decides=PLAN, local=True, metavar="SPEC",
    )  # fmt: skip
    replan: str = option(
        "auto",
        "Measure and plan again: auto (when iterations take longer or shorter than predicted), never, or every N.",
        decides=NOTHING,
    )
    epochs: int = option(3, "How often every training sample is seen.", decides=LENGTH, least=1)
    iterations: int | None = option(None, "Stop after so many iterations.", decides=LENGTH, least=1)
    batch_size: int = option(32, "Samples a rank and iteration.", decides=PLAN, least=1)
    global_batch_size: int | None = option(
        None, "Samples of all ranks together, instead of --batch-size.", decides=NOTHING, least=1
    )
    optimizer: str = option(
        "sgd", f"{', '.join(sorted(OPTIMIZERS))}; numbers of its own go behind a colon: adam:beta2=0.99."
    )
    lr: float = option(0.02, "Learning rate at the start; the default is for sgd, adam wants about 0.001.", least=0)
    lr_policy: str = option("poly", "How it changes: fixed, step:…, multistep:…, exp:…, inv:…, poly:…, sigmoid:….")
    rates: str | None = option(
        None, "Factors of the learning rate, by layer or tensor: stage1/*=0.1,fc=10,*.bias=2.", metavar="NAME=FACTOR,…"
    )
    weights: str | None = option(
        None, "Begin with the weights of a run folder or an exported file.",
        decides=NOTHING, local=True, metavar="FILE|RUN",
    )  # fmt: skip
    replace_head: bool = option(
        False, "With --weights: the last layer begins anew, for other classes.", decides=NOTHING
    )
    freeze: str | None = option(None, "Leave layers as they are, by name: stem/*,stage1/*.", metavar="NAME,…")
    momentum: float = option(0.9, "Momentum of SGD.", least=0)
    weight_decay: float = option(5e-4, "Weight decay (L2).", least=0)
    nesterov: bool = option(False, "Nesterov's momentum.")
    clip_norm: float | None = option(None, "Scale gradients down to this global norm.", above=0)
    on_nan: str = option(
        "stop", "A gradient that is not finite: stop, or skip its iteration.", choices=("stop", "skip")
    )
    shift: int = option(0, "Shift training images at random by up to so many pixels.", least=0)
    flip: bool = option(False, "Mirror training images at random.")
    label_smoothing: float = option(0.0, "Share of the target spread over all classes.", least=0, below=1)
    on_bad_image: str = option("stop", "stop, or skip it and take the next one.", choices=("stop", "skip"))
    decode_threads: int | None = option(
        None, "Threads that decode images.  [default: as --threads, 4 at most]", decides=NOTHING, local=True, least=1
    )
    seed: int = option(1, "Fixes weights, order of samples, dropout.", least=0, below=2**63)
    profile_iterations: int = option(10, "Unmerged iterations before the plan.", decides=NOTHING, least=2)
    log_every: int = option(20, "Iterations between two progress lines.", decides=NOTHING, least=1)
    timeline_iterations: int = option(20, "Planned iterations in timeline.json.", decides=NOTHING, least=0)
    checkpoint_every: int | None = option(
        None, "Iterations between two checkpoints.  [default: an epoch]", decides=NOTHING, least=1
    )
    keep_checkpoints: int = option(3, "How many checkpoints stay.", decides=NOTHING, least=1)
    resume: str | None = option(
        None, "Go on from the newest checkpoint there, with its model and options; auto: in --out, if there is one.",
        decides=NOTHING, local=True, metavar="FOLDER|auto",
    )  # fmt: skip
    change: bool = option(False, "With --resume: other options that decide the weights are meant.", decides=NOTHING)
    stall_warn: float = option(
        30.0, "Seconds without progress until a rank says where it is; 0: never.", decides=NOTHING, least=0
    )
    stall_abort: float = option(
        300.0, "Seconds without progress until the job ends; 0: never.", decides=NOTHING, least=0
    )
    threads: int | None = option(
        None, "BLAS threads a rank.  [default: cores ÷ ranks on this machine]", decides=PLAN, local=True, least=1
    )
    kernels: str | None = option(
        None, "numpy, fast or cupy.  [default: the fastest that works here]", decides=PLAN, local=True, metavar="SET"
    )
    math: str = option("fp32", "On GPUs: fp32, or tf32 on tensor cores.", choices=("fp32", "tf32"))
    share_gpu: bool = option(False, "Let ranks share a GPU.", decides=NOTHING)
    transport: str = option("auto", "On GPUs: auto, staged, device or device-blocking.", decides=NOTHING)
    algorithm: str = option(
        "mpi", "How messages are summed: mpi (the library's way), direct (ours), auto (the faster, measured).",
        decides=PLAN, choices=ALGORITHMS,
    )  # fmt: skip
    wire: str = option(
        "fp32", "What travels: fp32, bf16 (half the bytes, rounded, summed directly), auto (the faster).", choices=WIRES
    )

    def __post_init__(self) -> None:
        for each in options():
            _check(each.name, getattr(self, each.name), each.metadata)
        for name in PATHS:
            if isinstance(path := getattr(self, name), str):
                object.__setattr__(self, name, os.path.expanduser(path))  # a shell does, a config file does not
        check_replan(self.replan)
        if self.schedule == "pipelined" and (self.clip_norm is not None or self.on_nan == "skip"):
            raise UserError(f"--schedule pipelined: {NEEDS_ALL_SUMS}")

    def global_batch(self, ranks: int) -> int:
        """Samples in an iteration on `ranks` ranks."""
        return self.batch_size * ranks if self.global_batch_size is None else self.global_batch_size

    def to_dict(self) -> dict[str, Any]:
        """The options as a JSON object."""
        return asdict(self)


NO_MODEL = "name a model (mgwfbp train lenet), or a run to go on with (--resume FOLDER)"
PATHS = ("data_dir", "out", "resume", "weights")


def options() -> list[Any]:
    """The fields of Config that are options: all but the model."""
    return [each for each in fields(Config) if each.metadata]


def deciding(*what: str) -> list[str]:
    """The names of the options that decide one of `what`: WEIGHTS, PLAN, NOTHING."""
    return [each.name for each in options() if each.metadata["decides"] in what]


def shared_options() -> list[str]:
    """The names of what ranks must agree about."""
    return ["model", *(each.name for each in options() if not each.metadata["local"])]


def checked_options(given: Config | Mapping[str, Any]) -> dict[str, Any]:
    """What is said, as a dict. Raises UserError for options that there are not, or that contradict each other."""
    said = given.to_dict() if isinstance(given, Config) else dict(given)
    known = Config("").to_dict()
    unknown = next((name for name in said if name not in known), None)
    if unknown is not None:
        raise unknown_name("option", unknown, known)
    if said.get("resume") not in (None, "auto") and (said.get("weights") or said.get("replace_head")):
        raise UserError("--resume goes on with a run's own weights; to begin with others leave it out, --weights alone")
    if said.get("change") and not said.get("resume"):
        raise UserError("--change goes with --resume: it says that a run goes on with other options")
    if said.get("replace_head") and not said.get("weights"):
        raise UserError("--replace-head goes with --weights: without them all layers begin at random anyway")
    return said


def _check(name: str, value: Any, bounds: Any) -> None:
    """Raise UserError if `value` of the option called `name` is out of its `bounds`."""
    flag = f"--{name.replace('_', '-')}"
    if bounds["choices"] and value not in bounds["choices"]:
        raise unknown_name(f"value of {flag}:", value, bounds["choices"])
    if value is None or isinstance(value, str | bool):
        return
    least, below, above = bounds["least"], bounds["below"], bounds["above"]
    too_small = (least is not None and value < least) or (above is not None and value <= above)
    too_large = below is not None and value >= below
    if isinstance(value, int):
        limit = f"{least} or more" if too_small else f"below 2^{below.bit_length() - 1}" if too_large else ""
    elif below is not None:
        limit = f"at least {least:g} and below {below:g}"
    else:
        limit = f"a finite number above {above:g}" if above is not None else f"a finite number ≥ {least:g}"
    if too_small or too_large or not math.isfinite(value):
        raise UserError(f"{flag} must be {limit}, got {value}")
