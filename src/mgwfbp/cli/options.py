"""How options are declared here: every one has an environment variable, MGWFBP_ and its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import click

from mgwfbp.cli.complete import among, complete
from mgwfbp.errors import UserError, unknown_name
from mgwfbp.files import read_json, read_toml
from mgwfbp.plugins import load_plugin


def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """`click.option` whose default can also come from MGWFBP_NAME (MGWFBP_BATCH_SIZE), with the default in --help."""
    (long,) = (name for name in names if name.startswith("--"))
    settings.setdefault("envvar", "MGWFBP_" + long.lstrip("-").replace("-", "_").upper())
    settings.setdefault("show_default", True)
    if not settings.get("is_flag"):
        settings.setdefault("shell_complete", complete)
    return click.option(*names, **settings)


def argument(name: str, **settings: Any) -> Callable[[Any], Any]:
    """`click.argument` that a shell can complete: by the names that there are, or files."""
    return click.argument(name, shell_complete=complete, **settings)


def options_of(kind: type, fields: list[Any]) -> Callable[[Any], Any]:
    """The options for the `fields` of the dataclass `kind`, whose metadata have what --help says of each."""
    hints = get_type_hints(kind)

    def declare(command: Any) -> Any:
        for field in reversed(fields):
            types = [each for each in get_args(hints[field.name]) if each is not type(None)] or [hints[field.name]]
            settings: dict[str, Any] = {"help": field.metadata["help"], "default": field.default}
            if types == [bool]:
                settings["is_flag"] = True
            else:
                settings.update(type=types[0], metavar=field.metadata["metavar"])
            if field.metadata["choices"]:
                settings["shell_complete"] = among(field.metadata["choices"])
            command = option(f"--{field.name.replace('_', '-')}", **settings)(command)
        return command

    return declare


def _load_plugins(ctx: click.Context, _: click.Parameter, files: tuple[str, ...]) -> None:
    for file in files:
        load_plugin(file)


plugin = click.option(
    "--plugin",
    "plugins",
    multiple=True,
    type=click.Path(),  # so that several in the variable have colons between
    metavar="FILE.py",
    envvar="MGWFBP_PLUGIN",
    is_eager=True,
    expose_value=False,
    callback=_load_plugins,
    help="Run this file first: it registers models, data sets, optimisers, policies or transports of yours.",
)
played_network = option(
    "--network",
    metavar="SPEC",
    help="Play this network: each message takes what it would there.  [default: this machine's own, measured first]",
)
several_schedules = option(
    "--schedule", "schedules", multiple=True, metavar="NAME", help="A policy; repeat it.  [default: all]"
)


def config_option(command: Any) -> Any:
    """The option --config FILE.toml: values for the command's other options, below the command line and environment."""
    return click.option(
        "--config",
        metavar="FILE.toml|json",
        is_eager=True,
        expose_value=False,
        callback=_read_config,
        help="Options from a file, as epochs = 10, or a run's config.json; those of the command line come first.",
    )(command)


# What a run's config.json says beside options that another run may have; world_size by older versions.
NOT_OPTIONS = ("used", "changes", "world_size", "out", "overwrite", "resume", "change")


def _read_config(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is None:
        return
    where = f"config file {path}"
    options = {option.name: option for option in ctx.command.params if option.name not in ("config", "plugins")}
    defaults: dict[str, Any] = {}
    of_a_run = path.endswith(".json")  # config.json of a run folder: all its options, and what was used
    for key, value in (read_json(path, "config file") if of_a_run else read_toml(path, "config file")).items():
        if of_a_run and (value is None or key in NOT_OPTIONS):
            continue
        if key == "plugin":
            for file in value if isinstance(value, list) else [value]:
                load_plugin(str(file))
            continue
        option = options.get(key.replace("-", "_"))
        if option is None:
            raise unknown_name(f"option in {where}:", key, [str(name).replace("_", "-") for name in options])
        if isinstance(value, list | dict):
            raise UserError(f"{where}: {key} must be one value")
        # As text it is checked like the command line's: 3.7 is no number of epochs.
        defaults[str(option.name)] = str(value)
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def examples(text: str) -> dict[str, Any]:
    """The part of a command's settings that prints `text`, unwrapped, as examples below its --help."""
    return {"epilog": "\b\nExamples:\n" + "\n".join(f"  {line.strip()}" for line in text.strip().splitlines())}
