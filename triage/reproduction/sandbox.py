"""The sandbox: bubblewrap around one script, and what this machine can run in it.

The kernel is shared: this is for trusted code that misbehaves, not for hostile code.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

UID = 65534
#: Where the script lies in the sandbox; tracebacks show this name, so it tells nothing.
SCRIPT = "/job/train.py"
MAX_PROCESSES = 256
_MAX_OPEN_FILES = 1024
_SANDBOXES_OF_NOBODY = 8
_TMP_BYTES = 64 << 20
# What torch maps and never touches: threads' stacks, arenas, its own libraries.
_ADDRESS_SPACE_EXTRA_BYTES = 8 << 30
_PROBE_TIMEOUT_S = 120
_ETC = {
    "hosts": "127.0.0.1 localhost job\n::1 localhost\n",
    "passwd": f"job:x:{UID}:{UID}::/scratch:/bin/sh\n",
    "group": f"job:x:{UID}:\n",
    "nsswitch.conf": "hosts: files\npasswd: files\ngroup: files\n",
}
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache"
)  # fmt: skip
_PATH = "/usr/local/bin:/usr/bin:/bin"
# Runs inside, before the script: limits, a place behind those who watch, and then for good the
# user without rights.
_STEP_DOWN = """
import json, os, resource, sys
limits, uid = json.loads(sys.argv[1])
for name, value in limits.items():
    resource.setrlimit(getattr(resource, name), (value, value))
os.nice(5)
with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
if uid is not None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
os.execv(sys.argv[2], sys.argv[2:])
"""
_WHERE_PYTHON_LIES = """
import json, sys
print(json.dumps([sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]))
"""
_WHAT_IS_THERE = """
import json, os, platform, sys
shm = os.statvfs("/dev/shm")
about = {"python": platform.python_version(), "shm_mib": shm.f_blocks * shm.f_frsize >> 20,
         "uid": os.getuid(), "torch": "", "cuda": "", "devices": []}
try:
    import torch
except ImportError as error:
    about["torch_why"] = str(error)
except Exception as error:
    about["torch_why"] = f"{type(error).__name__}: {error}"
else:
    about["torch"] = torch.__version__
    about["cuda"] = torch.version.cuda or torch.version.hip or ""
    if torch.cuda.is_available():
        about["devices"] = [
            torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())
        ]
print(json.dumps(about))
"""


class NoSandboxError(RuntimeError):
    """This machine cannot shut a script in, or has no torch to run it; the message says why."""


@dataclass(frozen=True, slots=True)
class Box:
    """The size of a sandbox; `gpu` lets the devices of NVIDIA in."""

    memory_mib: int
    shm_mib: int = 64
    scratch_mib: int = 256
    gpu: bool = False


@dataclass(frozen=True, slots=True)
class Capability:
    """What reproductions find on this machine; `why` says what is missing, "" for nothing.

    `devices` are names of GPUs, `cgroup` the controllers that bound a whole sandbox.
    """

    sandbox: bool
    why: str
    python: str = ""
    torch: str = ""
    cuda: str = ""
    driver: str = ""
    devices: tuple[str, ...] = ()
    memory_mib: int = 0
    shm_mib: int = 0
    cpus: int = 0
    cgroup: tuple[str, ...] = ()
    py_spy: bool = False
    interpreter: str = ""
    mode: str = ""

    @property
    def is_able(self) -> bool:
        """Whether a reproduction can run here at all."""
        return self.sandbox and bool(self.torch)

    def lacks(self, where: str) -> str:
        """What is missing here for a reproduction that runs there; "" for nothing."""
        if not self.is_able:
            return self.why
        wanted = {"cpu": 0, "gpu1": 1, "gpuN": 2}.get(where)
        if wanted is None:
            return f"a reproduction for {where} runs nowhere"
        if len(self.devices) < wanted:
            return f"needs {'one GPU' if wanted == 1 else 'two GPUs or more'}, which is not here"
        return ""

    def to_json(self) -> dict[str, Any]:
        """Plain values, as a worker announces them."""
        return asdict(self)


def interpreter() -> str:
    """The Python that reproductions run on: PITSTOP_REPRO_PYTHON, else this one."""
    return os.environ.get("PITSTOP_REPRO_PYTHON") or sys.executable


def why_unlikely(python: str) -> str:
    """What a look from outside already misses for reproductions; "" leaves it to `probe`. Quick."""
    if sys.platform != "linux" or shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    look = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    try:
        done = subprocess.run(
            [python, "-I", "-c", look],
            capture_output=True,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return "torch is not installed (pip install 'pitstop[repro]')" if done.returncode else ""


@cache
def probe(python: str) -> Capability:
    """What this machine can run on that Python; asked once a process. No exception."""
    about: dict[str, Any] = {
        "interpreter": python,
        "memory_mib": _memory_mib(),
        "cpus": os.cpu_count() or 1,
        "cgroup": tuple(sorted(cgroup_folders())),
        "driver": _driver(),
        "py_spy": find_py_spy(python) is not None,
    }
    if sys.platform != "linux":
        return Capability(False, f"no sandbox here: {platform.system()} has no bubblewrap", **about)
    if shutil.which("bwrap") is None:
        return Capability(
            False, "no sandbox here: bubblewrap is not installed (apt install bubblewrap)", **about
        )
    why = ""
    for mode in modes():
        try:
            found = _ask(python, mode)
        except NoSandboxError as error:
            why = str(error)
            continue
        torch_why = found.pop("torch_why", "")
        found.pop("uid")
        found["devices"] = tuple(found["devices"])
        why = f"no torch here: {torch_why} (it comes with the extra `repro`)" if torch_why else ""
        return Capability(True, why, mode=mode, **about, **found)
    return Capability(False, f"no sandbox here: {why}", **about)


def modes() -> list[str]:
    """Ways to become nobody: by giving up root's rights, or in a user namespace of one's own.

    The kernel never counts the processes of the host's root, whatever he is called inside: so he
    first tries to become somebody else.
    """
    return ["step-down", "user-namespace"] if os.geteuid() == 0 else ["user-namespace"]


def _ask(python: str, mode: str) -> dict[str, Any]:
    box = Box(memory_mib=4096, gpu=True)
    try:
        with Command(python, _WHAT_IS_THERE.encode(), (), box, mode=mode) as command:
            done = subprocess.run(
                command.argv,
                pass_fds=command.fds,
                capture_output=True,
                text=True,
                check=False,
                timeout=_PROBE_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoSandboxError(str(error)) from error
    lines = done.stdout.strip().splitlines()
    try:
        about: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise NoSandboxError(said) from None
    if about["uid"] != UID:
        raise NoSandboxError(f"the script would run as user {about['uid']}")
    return about


class Command:
    """The command line that runs a script in a sandbox of its own, and the descriptors it reads.

    The script and the files of /etc are handed over in memory, so that nothing is left behind
    whoever is killed when. A context manager; OSError without a Python.
    """

    def __init__(
        self,
        python: str,
        script: bytes,
        arguments: Sequence[str],
        box: Box,
        *,
        mode: str,
        options: Sequence[str] = (),
    ) -> None:
        self.fds: list[int] = []
        files = {SCRIPT: script} | {f"/etc/{name}": text.encode() for name, text in _ETC.items()}
        walls = list(_walls(python, box, mode))
        self.argv = ["bwrap", *options, *walls]
        for place, content in files.items():
            self.argv += ["--perms", "0444", "--ro-bind-data", str(self._held(content)), place]
        self.argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/scratch", "--"]
        self.argv += _inside(python, arguments, box, mode)

    def _held(self, content: bytes) -> int:
        fd = os.memfd_create("job")
        self.fds.append(fd)
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self.fds:
            os.close(fd)


def _walls(python: str, box: Box, mode: str) -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts")
    yield from ("--unshare-cgroup-try", "--die-with-parent", "--new-session", "--hostname", "job")
    yield from ("--cap-drop", "ALL")
    if mode == "step-down":
        yield from ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    else:
        yield from ("--unshare-user", "--uid", str(UID), "--gid", str(UID))
    for place in ("/etc", str(Path(SCRIPT).parent)):
        yield from _open_folder(place)
    for place in _SYSTEM:
        yield from _bound(place)
    yield from ("--proc", "/proc", "--dev", "/dev")
    for place, size in (
        ("/dev/shm", box.shm_mib << 20),  # noqa: S108 (the sandbox's own)
        ("/scratch", box.scratch_mib << 20),
        ("/tmp", _TMP_BYTES),  # noqa: S108
    ):
        yield from ("--perms", "1777", "--size", str(size), "--tmpfs", place)
    for place in python_folders(python):
        # bubblewrap would make folders above it that root alone may enter.
        for parent in reversed(Path(place).parents[:-1]):
            yield from _open_folder(str(parent))
        yield from ("--ro-bind", place, place)
    if box.gpu:
        for device in sorted(Path("/dev").glob("nvidia*")):
            yield from ("--dev-bind", str(device), str(device))
    yield "--clearenv"
    for name, value in _environment(box).items():
        yield from ("--setenv", name, value)


def _open_folder(place: str) -> Iterator[str]:
    yield from ("--perms", "0755", "--dir", place)


def _bound(place: str) -> Iterator[str]:
    path = Path(place)
    if path.is_symlink():
        yield from ("--symlink", str(path.readlink()), place)
    elif path.exists():
        yield from ("--ro-bind", place, place)


def _environment(box: Box) -> dict[str, str]:
    environment = {
        "PATH": _PATH,
        "HOME": "/scratch",
        "TMPDIR": "/tmp",  # noqa: S108 (the sandbox's own)
        "USER": "job",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "2",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "TORCHINDUCTOR_CACHE_DIR": "/scratch/inductor",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRITON_CACHE_DIR": "/scratch/triton",
    }
    return environment if box.gpu else environment | {"CUDA_VISIBLE_DEVICES": ""}


def _inside(python: str, arguments: Sequence[str], box: Box, mode: str) -> list[str]:
    limits = {
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": _MAX_OPEN_FILES,
        # In a user namespace it counts this sandbox; else all of nobody's processes on the host.
        "RLIMIT_NPROC": MAX_PROCESSES * (_SANDBOXES_OF_NOBODY if mode == "step-down" else 1),
    }
    if not box.gpu:
        # CUDA reserves far more addresses than it ever uses.
        limits["RLIMIT_AS"] = (box.memory_mib << 20) + _ADDRESS_SPACE_EXTRA_BYTES
    step = json.dumps([limits, UID if mode == "step-down" else None])
    return [python, "-I", "-S", "-c", _STEP_DOWN, step, python, SCRIPT, *arguments]


@cache
def python_folders(python: str) -> tuple[str, ...]:
    """The folders that this Python needs beyond /usr, none inside another; OSError without one."""
    done = subprocess.run(
        [python, "-I", "-c", _WHERE_PYTHON_LIES],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise OSError(f"{python} does not start: {done.stderr.strip()[-200:]}")
    places = [Path(place) for place in json.loads(done.stdout)]
    link = Path(python)
    while link.is_symlink():
        places.append(link.parent)
        link = link.parent / link.readlink()
    places.append(link.parent)
    wanted = sorted({str(p) for place in places for p in (place, place.resolve())})
    kept: list[str] = []
    for place in wanted:
        inside = any(Path(place).is_relative_to(other) for other in ("/usr", *kept))
        if not inside and Path(place).is_dir() and place != "/" and not Path(place).is_symlink():
            kept.append(place)
    return tuple(kept)


def find_py_spy(python: str) -> str | None:
    """The program `py-spy` beside that Python, beside this one, or on PATH."""
    folders = [str(Path(p).parent) for p in (python, sys.executable)]
    return shutil.which("py-spy", path=os.pathsep.join(folders)) or shutil.which("py-spy")


def _memory_mib() -> int:
    with suppress(OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return 0


def _driver() -> str:
    """The NVIDIA driver's version, "" without one."""
    with suppress(OSError):
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
    return ""


# ------------------------------------------------------------------------------- control groups


def cgroup_folders() -> dict[str, Path]:
    """By controller, memory and pids, the folder below which we may make groups of our own."""
    found: dict[str, Path] = {}
    with suppress(OSError):
        for row in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
            _, names, own = row.split(":", 2)
            for name in names.split(",") if names else ("",):
                for controller, folder in _candidates(name, own.lstrip("/")):
                    if os.access(folder, os.W_OK):
                        found.setdefault(controller, folder)
    return found


def _candidates(name: str, own: str) -> Iterator[tuple[str, Path]]:
    root = Path("/sys/fs/cgroup")
    if name in ("memory", "pids"):
        yield name, root / name / own
    elif not name:
        # In version 2 only a group without processes hands controllers down: the one above ours.
        for folder in ((root / own), (root / own).parent):
            with suppress(OSError):
                handed = (folder / "cgroup.subtree_control").read_text(encoding="ascii").split()
                for controller in {"memory", "pids"} & set(handed):
                    yield controller, folder


class Group:
    """A control group for one sandbox, where this machine lets us have one; else without effect."""

    def __init__(self, memory_mib: int) -> None:
        self._folders: dict[str, Path] = {}
        name = f"{_GROUP}{os.getpid()}-{uuid.uuid4().hex[:12]}"
        for controller, parent in cgroup_folders().items():
            _sweep(parent)
            folder = parent / name
            try:
                folder.mkdir(exist_ok=True)
                self._limit(controller, folder, memory_mib)
            except OSError:
                with suppress(OSError):
                    folder.rmdir()
            else:
                self._folders[controller] = folder

    @staticmethod
    def _limit(controller: str, folder: Path, memory_mib: int) -> None:
        if controller == "pids":
            (folder / "pids.max").write_text(str(MAX_PROCESSES))
            return
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (folder / name).exists():
                (folder / name).write_text(str(memory_mib << 20))
        with suppress(OSError):
            (folder / "memory.swap.max").write_text("0")

    def add(self, pid: int) -> None:
        """Puts the process in; what it starts later is in as well."""
        for folder in self._folders.values():
            with suppress(OSError):
                (folder / "cgroup.procs").write_text(str(pid))

    def events(self) -> dict[str, int]:
        """How often the limits bit: `oom_kill` and `pids_max`."""
        found = {"oom_kill": 0, "pids_max": 0}
        for controller, folder in self._folders.items():
            names = ("pids.events",) if controller == "pids" else _MEMORY_EVENTS
            for name in names:
                with suppress(OSError):
                    for row in (folder / name).read_text(encoding="ascii").splitlines():
                        key, _, count = row.partition(" ")
                        key = "pids_max" if controller == "pids" and key == "max" else key
                        if key in found and count.isdigit():
                            found[key] = max(found[key], int(count))
        return found

    def remove(self) -> None:
        """Takes the group away; its processes must be gone."""
        for folder in set(self._folders.values()):
            with suppress(OSError):
                folder.rmdir()


_MEMORY_EVENTS = ("memory.events", "memory.oom_control")
_GROUP = "pitstop-"


def _sweep(parent: Path) -> None:
    """Takes away the groups of runners that were killed."""
    for folder in parent.glob(f"{_GROUP}*-*"):
        owner = folder.name.removeprefix(_GROUP).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            with suppress(OSError):
                folder.rmdir()
