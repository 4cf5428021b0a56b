"""The command `mgwfbp`: picks the subcommand, and decides how each kind of failure ends the process.

0    it worked
1    something failed that the user could not foresee: a traceback, and the whole job ends
2    a user's mistake: one line that says what to do
3    training has diverged: a loss or a gradient is not finite
75   stopped by a signal, after a checkpoint: start it again with --resume
130  ended by Ctrl-C at once
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from importlib import import_module

import click
from click.core import ParameterSource

from mgwfbp.cli.variables import LAUNCHED, name_unknown, not_first
from mgwfbp.errors import SharedError, StoppedError, UserError, unknown_name

COMMANDS = {
    "train": "Train a network on all ranks.",
    "evaluate": "Loss and accuracy of a trained net.",
    "predict": "What a trained net sees in images.",
    "export": "The weights of a trained net in one file.",
    "plan": "Compare schedules for a workload on a network, on paper.",
    "simulate": "What a net would do on 4, 8, 16, … nodes.",
    "reproduce": "The paper's tables and figures beside ours.",
    "import": "Turn public logs into WORKLOAD and NETWORK files.",
    "profile": "Measure a network's layer times: a WORKLOAD file.",
    "replay": "Run a workload's messages for real, and compare with the prediction.",
    "bench": "Measure what this machine and its network can do.",
    "doctor": "What this job has, and what is wrong with it.",
}

# Commands that never start MPI: their ranks do not wait for each other.
ALONE = [["plan"], ["simulate"], ["reproduce"], ["import"], ["predict"], ["export"]]

MODULES = {"import": "import_"}  # a module cannot be called by a keyword


class Commands(click.Group):
    """The subcommands, each imported when it is asked for: `plan` needs no MPI."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of a user's day."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        """The command called `name`. Raises UserError with the nearest name for an unknown one."""
        if name not in COMMANDS:
            raise unknown_name("command", name, COMMANDS)
        return import_module(f"mgwfbp.cli.{MODULES.get(name, name)}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in --help, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


CODES = """\b
Exit codes:
  0    it worked                     1   a fault, with its traceback
  2    a mistake of yours, one line  3   training has diverged
  75   stopped by a signal, with a checkpoint: start it again with --resume
  130  ended by Ctrl-C at once
"""


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from mgwfbp.cli.version import versions

        click.echo(versions())
        ctx.exit()


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=CODES)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
    help="Show the versions of mgwfbp, Python, MPI and the kernels.",
)  # fmt: skip
def cli() -> None:
    """Data-parallel SGD that you can read: merged gradients, exact schedules, plain MPI.

    Start the commands that use several ranks with mpirun or srun: mpirun -n 2 mgwfbp train lenet
    """


def main() -> None:
    """Run the command line and exit."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="replace")  # a terminal without × and µ shows ? instead
    if sys.argv[1:2] in ALONE and not_first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - mpirun -n 2 mgwfbp plan …: the first process says it
    try:
        name_unknown([MODULES.get(name, name) for name in sorted(COMMANDS, key=lambda name: name not in sys.argv[1:2])])
        code = cli.main(prog_name="mgwfbp", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 2
    except (click.Abort, KeyboardInterrupt):
        code = _leave(130)
    except click.ClickException as error:
        code = _mistake(error.format_message() + _from_variable(error), shared=False)
    except StoppedError as error:
        world = _world()
        if world is None or world.rank == 0:
            sys.stderr.write(f"mgwfbp: {error}\n")
        code = error.code
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # an echo of what was asked for must not change the exit code now
    except UserError as error:
        code = _mistake(str(error), shared=isinstance(error, SharedError))
        code = getattr(error, "code", code)
    except OSError as error:
        code = _unwritten(error) if error.errno in (errno.EPIPE, errno.ENOSPC) else _failure(error)
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich leaves by it
            code = _unwritten(error.__context__)
        elif type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):  # click's, after it has met one
            code = _unwritten(BrokenPipeError())
        elif (
            isinstance(error.code, int) and _world() is None
        ):  # click does, after it has completed a word for the shell
            code = error.code
        else:
            code = _failure(error)
    except Exception as error:
        code = _failure(error)
    guard = sys.modules.get("mgwfbp.comm.guard")
    if guard is not None:
        guard.leave_alike()
    sys.exit(code)


def _from_variable(error: click.ClickException) -> str:
    """Where a wrong value came from, if nobody typed it."""
    context, param = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or param is None or context.get_parameter_source(param.name) != ParameterSource.ENVIRONMENT:
        return ""
    return f" It comes from the variable {param.envvar}."


def _unwritten(error: OSError) -> int:
    """`mgwfbp plan … | head`, or a log on a full disk: files of ours are reported where they are written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.ENOSPC:
        sys.stderr.write("mgwfbp: error: the output cannot be written (no space left)\n")
    return _leave(1)


def _leave(code: int) -> int:
    """Leave at once with `code`; the other ranks, which would wait for this one, end too."""
    world = _world()
    if world is not None and world.size > 1:
        from mgwfbp.comm.mpi import end_job

        end_job(code)
    return code


def _mistake(message: str, shared: bool) -> int:
    """Print a user's mistake in one line; `shared` means that every rank knows of it and stops with this one."""
    message = " ".join(message.split())
    world = _world()
    if world is None and any(name in os.environ for name in LAUNCHED) and sys.argv[1:2] not in ALONE:
        # The others may have nothing to complain of, and then they wait for this rank to start MPI: tell them.
        try:
            from mgwfbp.comm import World

            World(mistake=message)
        except SharedError as error:
            message, shared, world = str(error), True, _world()
        except UserError:  # there is no MPI here; the first mistake is the one to mend first
            pass
    if world is None or world.size == 1:
        sys.stderr.write(f"mgwfbp: error: {message}\n")
    elif not shared:
        sys.stderr.write(f"mgwfbp: error on rank {world.rank}: {message}\n")
        return _leave(2)
    elif world.rank == 0:
        sys.stderr.write(f"mgwfbp: error: {message}\n")
    return 2


def _failure(error: BaseException) -> int:
    """A fault: the traceback, and the end of the whole job, since the other ranks would wait for this one for ever."""
    world = _world()
    if world is None or world.size == 1:
        traceback.print_exception(error)
    else:
        from mgwfbp.comm.mpi import abort_job

        abort_job("in the main thread", error)
    return 1


def _world():  # type: ignore[no-untyped-def]
    """COMM_WORLD if this process has started MPI, else None."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi.COMM_WORLD if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() else None
