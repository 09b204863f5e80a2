"""A throw-away Slurm of one node on this machine: own key, folders and ports, no accounting.

``python tests/slurm/cluster.py DIR`` starts one and says how to use it, until Ctrl-C.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
MUNGE = ("key-file", "pid-file", "seed-file")
NODE = socket.gethostname().partition(".")[0]

# cred_expire is how long a requeued job waits before it may start again.
CONFIG = """
ClusterName=throwaway
SlurmctldHost={node}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=10000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=2
MaxArraySize={array}
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={node} CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes={node} Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes={node} MaxTime=INFINITE State=UP PriorityTier=9
"""


def why_not() -> str:
    """Why there can be no cluster here; "" where there can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "a throw-away Slurm has to be started by root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"no {', '.join(missing)}: apt-get install slurm-wlm munge" if missing else ""


class Cluster:
    """The daemons of a cluster; ``config`` is the ``slurm.conf`` for ``SLURM_CONF``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "slurm.conf"
        munge = [f"--{n}={folder / 'munge'}.{n[:-5]}" for n in MUNGE]
        self.commands = {
            "munged": ["--foreground", "--force", *munge, f"--socket={folder}/munge.socket"],
            "slurmctld": ["-D", "-f", str(self.config)],
            "slurmd": ["-D", "-f", str(self.config)],
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            command = [name, *self.commands[name]]
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        process.wait()


@contextmanager
def running(folder: Path, cpus: int = 4, array: int = 1001) -> Iterator[Cluster]:
    """A cluster while the block runs.

    Raises:
        RuntimeError: It did not come up; the message holds the end of its logs.
    """
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    cluster = Cluster(folder)
    key, config = folder / "munge.key", cluster.config
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    config.write_text(
        CONFIG.format(node=NODE, folder=folder, ports=_free_ports(2), cpus=cpus, array=array)
    )
    try:
        for name in cluster.commands:
            cluster.start(name)
            _wait_for(folder / "munge.socket")
        _wait_until(config, ["sinfo", "--noheader", "--format=%T"], "idle")
        yield cluster
        _slurm(config, ["scancel", "--quiet", f"--user={os.getuid()}"])
        _wait_until(config, ["squeue", "--noheader"], "")  # else its processes would outlive it
    finally:
        for name in reversed(list(cluster.processes)):
            cluster.stop(name)


def _free_ports(count: int) -> list[int]:
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in (first, second)][:count]


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def _slurm(config: Path, command: list[str]) -> str:
    environment = {**os.environ, "SLURM_CONF": str(config)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()


def _wait_until(config: Path, command: list[str], answer: str) -> None:
    deadline = time.monotonic() + 60
    while _slurm(config, command) != answer:
        if time.monotonic() > deadline:
            logs = [file.read_text(errors="replace")[-800:] for file in config.parent.glob("*.log")]
            raise RuntimeError("\n".join([f"{command[0]} does not say {answer!r}:", *logs]))
        time.sleep(0.2)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with running(Path(sys.argv[1]).resolve()) as cluster:
        print(f"export SLURM_CONF={cluster.config}", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            pass
