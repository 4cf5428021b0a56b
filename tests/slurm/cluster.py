"""A Slurm for tests: started by the first process that needs it, stopped by the last one; and the jobs in it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BASE = Path(tempfile.gettempdir()) / "mgwfbp-slurm"


class UnavailableError(Exception):
    """Slurm cannot run on this machine, and why."""


@contextmanager
def slurm() -> Iterator[dict[str, str]]:
    """Within it a Slurm of two nodes runs; yields the environment for its commands. Processes may be in it together.

    Raises UnavailableError where it cannot be started.
    """
    own = {**os.environ, "SLURM_BASE": str(BASE)}
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
        raise UnavailableError("a Slurm of one's own needs root on Debian")
    with open(f"{BASE}.users", "w") as users:
        with _turn():
            try:
                subprocess.run([HERE / "up.sh"], env=own, capture_output=True, text=True, check=True, timeout=150)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                subprocess.run([HERE / "down.sh"], env=own, capture_output=True, check=False)
                lines = str(error.stderr or error).splitlines()
                raise UnavailableError(f"Slurm cannot be started: {lines[-1]}") from None
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            # Not what tests run inside someone's job would inherit.
            outside = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
            yield {**outside, "SLURM_CONF": str(BASE / "etc" / "slurm.conf")}
        finally:
            with _turn():
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pass  # another process is in it
                else:
                    subprocess.run([HERE / "down.sh", "--purge"], env=own, capture_output=True, check=False)


@contextmanager
def _turn() -> Iterator[None]:
    """One process at a time."""
    with open(f"{BASE}.turn", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Job:
    """A submitted job; its output goes to the file `log`."""

    def __init__(self, environment: dict[str, str], log: Path, *command: object, **variables: str) -> None:
        self.environment, self.log_file = {**environment, **variables}, log
        words = [str(word) for word in command]
        self.id = self._run("sbatch", "--parsable", f"--output={self.log_file}", *words).strip()

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def shown(self) -> dict[str, str]:
        """What `scontrol show job` says: JobState, ExitCode, Restarts, …"""
        words = self._run("scontrol", "--oneliner", "show", "job", self.id).split()
        return dict(word.partition("=")[::2] for word in words)

    def signal(self, *options: str) -> None:
        """`scancel` with `options`."""
        self._run("scancel", *options, self.id)

    def until(self, text: str, seconds: float = 40) -> None:
        """Wait until the log has `text` in it."""
        self._poll(lambda: text in self.log, f"{text!r} in the log", seconds)

    def end(self, seconds: float = 40) -> int:
        """Wait until it has ended; its exit code."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        self._poll(lambda: self.shown()["JobState"] in over, "its end", seconds)
        return int(self.shown()["ExitCode"].partition(":")[0])

    def _poll(self, condition, what, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come in {seconds} s; log:\n{self.log}"
            time.sleep(0.2)
