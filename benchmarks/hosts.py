"""A slow network on one machine: each rank in a network namespace of its own, joined by a bridge, shaped both ways.

Needs Linux, root and iproute2; MPICH for `mpirun`. Used by shaped_network.py and messages.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

BRIDGE_ADDRESS = "10.77.0.254"
# The token bucket lets messages below this through unshaped, so the cost is a table, not a line.
SHAPING = ("burst", "128kb", "latency", "100ms")


def missing() -> str | None:
    """Why there can be no such network here, or None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs Linux and root"
    return next(
        (f"needs {tool} (iproute2, util-linux)" for tool in ("ip", "tc", "unshare") if not shutil.which(tool)), None
    )


class Hosts:
    """`count` hosts joined by links of `rate` ("1gbit"), as a context; all is removed at its end."""

    def __init__(self, count: int, rate: str) -> None:
        self.count, self.rate, self.prefix = count, rate, f"mg{os.getpid() % 10000}n"
        self.names = [f"{self.prefix}{index}" for index in range(count)]
        self.addresses = [f"10.77.0.{index + 1}" for index in range(count)]

    def __enter__(self) -> Hosts:
        bridge = f"{self.prefix}b"
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "link", "set", bridge, "up")
        run("ip", "addr", "add", f"{BRIDGE_ADDRESS}/24", "dev", bridge)
        for name, address in zip(self.names, self.addresses, strict=True):
            inside = ("ip", "netns", "exec", name)
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"v{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", f"v{name}", "master", bridge, "up")
            run(*inside, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
            run(*inside, "ip", "link", "set", "eth0", "up")
            run(*inside, "ip", "link", "set", "lo", "up")
        self.shape(self.rate)
        self.folder = tempfile.TemporaryDirectory()
        agent = Path(self.folder.name, "agent")
        # What mpirun takes for ssh: HOST COMMAND… becomes COMMAND in that host's namespace, under its own host name.
        agent.write_text(
            "#!/bin/bash\n"
            'while [ "${1#-}" != "$1" ]; do shift; done\n'
            f"h={self.prefix}$(( ${{1##*.}} - 1 )); shift\n"
            'exec ip netns exec "$h" unshare --uts sh -c "hostname $h; $*"\n'
        )
        agent.chmod(0o755)
        self.agent = str(agent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", f"{self.prefix}b"], check=False)
        self.folder.cleanup()

    def shape(self, rate: str) -> None:
        """Both directions of every link get `rate` from now on."""
        for name in self.names:
            run(
                "ip",
                "netns",
                "exec",
                name,
                "tc",
                "qdisc",
                "replace",
                "dev",
                "eth0",
                "root",
                "tbf",
                "rate",
                rate,
                *SHAPING,
            )
            run("tc", "qdisc", "replace", "dev", f"v{name}", "root", "tbf", "rate", rate, *SHAPING)

    def mpirun(self, *command: str) -> list[str]:
        """The command line that runs `command` as one rank a host, by MPICH over the shaped links alone."""
        mpirun = Path(sys.executable).parent / "mpirun"
        settings = ["-localhost", BRIDGE_ADDRESS, "-launcher", "ssh", "-launcher-exec", self.agent]
        settings += ["-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES", "eth0"]
        return [str(mpirun), *settings, "-hosts", ",".join(self.addresses), "-n", str(self.count), *command]

    def mpirun_of_open_mpi(self, mpirun: Path, *command: str) -> list[str]:
        """The same by Open MPI's `mpirun`; `command` must run in an environment with it."""
        settings = ["--allow-run-as-root", "--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", self.agent]
        settings += ["--prtemca", "prte_if_include", "10.77.0.0/24", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
        settings += ["--mca", "btl_tcp_if_include", "eth0"]
        hosts = ",".join(f"{address}:1" for address in self.addresses)
        return [str(mpirun), *settings, "--host", hosts, "-n", str(self.count), *command]

    def each(self, *command: str, **environment: str) -> list[subprocess.Popen[str]]:
        """`command` started once on each host, with RANK, WORLD_SIZE, MASTER_ADDR as PyTorch wants them."""
        processes = []
        for rank, name in enumerate(self.names):
            more = {"RANK": str(rank), "WORLD_SIZE": str(self.count), "MASTER_ADDR": self.addresses[0]}
            processes.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", name, *command],
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "GLOO_SOCKET_IFNAME": "eth0", **more, **environment},
                )
            )
        return processes


def run(*command: str) -> None:
    subprocess.run(command, check=True)
