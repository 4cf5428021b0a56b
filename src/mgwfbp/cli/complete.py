"""What a shell may complete: the names of models, schedules, data sets and whatever else has a registry.

bash:  eval "$(_MGWFBP_COMPLETE=bash_source mgwfbp)"
zsh:   eval "$(_MGWFBP_COMPLETE=zsh_source mgwfbp)"
fish:  _MGWFBP_COMPLETE=fish_source mgwfbp | source
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem


def _models() -> Iterable[str]:
    from mgwfbp.models import MODELS

    return MODELS


def _schedules() -> Iterable[str]:
    from mgwfbp.schedule.policies import POLICIES, SIZED

    return [*POLICIES, *SIZED]


def _data() -> Iterable[str]:
    from mgwfbp.data import DATASETS

    return [f"{name}:" if name in ("synthetic", "arrays") else name for name in DATASETS]


def _optimizers() -> Iterable[str]:
    from mgwfbp.optim import OPTIMIZERS

    return OPTIMIZERS


def _lr_policies() -> Iterable[str]:
    from mgwfbp.optim.lr import EXAMPLES

    return ["fixed", *EXAMPLES.values()]


def _networks() -> Iterable[str]:
    from mgwfbp.simulate.figures import shipped

    return [*shipped("network"), "k80-10gbe"]


def _workloads() -> Iterable[str]:
    from mgwfbp.simulate.figures import shipped

    return shipped("workload")


# the name of an option or argument -> its values; those with a colon inside come with an example of what is behind it
NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "model": _models,
    "schedule": _schedules,
    "schedules": _schedules,
    "data": _data,
    "optimizer": _optimizers,
    "lr_policy": _lr_policies,
    "network": _networks,
    "workload": _workloads,
    "kernels": lambda: ("numpy", "fast", "cupy"),
    "transport": lambda: ("auto", "staged", "device", "device-blocking"),
    "replan": lambda: ("auto", "never"),
    "resume": lambda: ("auto",),
}


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names that begin with what stands there, or a choice's values; files where there are none."""
    names = NAMES.get(str(param.name), lambda: getattr(param.type, "choices", ()))()
    return among(names)(ctx, param, incomplete)


def among(names: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What completes by `names`, and by files where none of them begins so."""

    def those(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]

    return those
