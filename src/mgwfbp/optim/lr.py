"""Learning-rate policies: Caffe's seven, as functions of the iteration.

A policy is written NAME:KEY=VALUE,… ; t is the iteration from 0, T the iterations of the run:

    fixed                             lr
    step:gamma=0.1,size=1000          lr · gamma^⌊t / size⌋
    multistep:gamma=0.1,at=500+900    lr · gamma^(how many of the `at` are ≤ t)
    exp:gamma=0.999                   lr · gamma^t
    inv:gamma=0.0001,power=0.75       lr · (1 + gamma·t)^−power
    poly:power=1                      lr · (1 − t/T)^power
    sigmoid:gamma=-0.01,size=500      lr / (1 + exp(−gamma·(t − size)))
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mgwfbp.errors import UserError, unknown_name
from mgwfbp.fields import assignments

# (t, T) -> factor of the base learning rate
Policy = Callable[[int, int], float]

KEYS: dict[str, dict[str, str]] = {  # name -> its keys and their defaults ("" must be given)
    "fixed": {},
    "step": {"gamma": "0.1", "size": ""},
    "multistep": {"gamma": "0.1", "at": ""},
    "exp": {"gamma": ""},
    "inv": {"gamma": "0.0001", "power": "0.75"},
    "poly": {"power": "1"},
    "sigmoid": {"gamma": "", "size": ""},
}


def lr_policy(spec: str) -> Policy:
    """The policy that `spec` stands for, as a factor (t, T) → float. Raises UserError for a bad name or value."""
    name, _, rest = spec.partition(":")
    if name not in KEYS:
        raise unknown_name("lr policy", name, KEYS)
    where = f"lr policy {spec!r}"
    required = tuple(key for key, default in KEYS[name].items() if not default)
    optional = tuple(key for key, default in KEYS[name].items() if default)
    given = {**KEYS[name], **assignments(rest, where, required, optional)}
    try:
        at = [float(value) for value in given.pop("at").split("+")] if "at" in given else []
        v = {key: float(value) for key, value in given.items()}
        signed = name == "sigmoid"  # whose gamma says which way it goes
        if not all(math.isfinite(value) and (value >= 0 or signed) for value in [*v.values(), *at]):
            raise ValueError
        if v.get("size", 1) <= 0:
            raise ValueError
    except ValueError:
        raise UserError(
            f"lr policy {spec!r}: needs numbers ≥ 0 for {', '.join(KEYS[name])}, e.g. {EXAMPLES[name]}"
        ) from None
    policies: dict[str, Policy] = {
        "fixed": lambda t, total: 1.0,
        "step": lambda t, total: v["gamma"] ** (t // v["size"]),
        "multistep": lambda t, total: v["gamma"] ** sum(t >= step for step in at),
        "exp": lambda t, total: v["gamma"] ** t,
        "inv": lambda t, total: (1 + v["gamma"] * t) ** -v["power"],
        "poly": lambda t, total: (1 - t / total) ** v["power"],
        "sigmoid": lambda t, total: 0.5 * (1 + math.tanh(0.5 * v["gamma"] * (t - v["size"]))),  # never overflows
    }
    return policies[name]


def check_lr(spec: str, lr: float, iterations: int) -> None:
    """Raise UserError if `lr` times the policy's factor is no finite number at the end of a run of `iterations`."""
    try:
        last = lr * lr_policy(spec)(iterations - 1, iterations)
    except OverflowError:
        last = math.inf
    if not math.isfinite(last):
        raise UserError(f"lr policy {spec!r}: the learning rate outgrows all numbers in {iterations} iterations")


EXAMPLES = {
    "step": "step:gamma=0.1,size=1000",
    "multistep": "multistep:gamma=0.1,at=500+900",
    "exp": "exp:gamma=0.999",
    "inv": "inv:gamma=0.0001,power=0.75",
    "poly": "poly:power=1",
    "sigmoid": "sigmoid:gamma=-0.01,size=500",
}
