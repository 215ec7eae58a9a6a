"""A metric of the predictive track that tries to read what it is asked to predict, by every road.

The spy is one module with a function for each road. It runs in the sandbox on a finished study; a
road that gets hold of a single true byte reports it. The same roads are walked once without the
sandbox, to show that they lead somewhere: a wall is only tested by what would get through.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from eps_locked.cli.metric import protected_folders, study_words
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.metrics import landlock, seccomp
from eps_locked.metrics.loading import find_file
from eps_locked.metrics.materials import export_materials
from eps_locked.metrics.sandbox import Job, Limits, run
from sim.simulator import AUTHOR, NAME, StudySimulator, fingerprint

pytestmark = pytest.mark.skipif(
    landlock.abi_version() < 1 or not seccomp.is_known_machine(),
    reason="this kernel offers no Landlock, or the processor's calls are not listed",
)

SECRET = b"the value of a sealed cell is 4.25"

SPY = """
import ctypes, json, mmap, os, pathlib, shutil, signal, socket, struct, subprocess, sys, threading

TARGETS = @TARGETS@
PARENT, ADDRESS, SECRET = @PARENT@, @ADDRESS@, @SECRET@
TCP, UDP, UNIX, ABSTRACT = @TCP@, @UDP@, @UNIX@, @ABSTRACT@
libc = ctypes.CDLL(None, use_errno=True)


def plain_open(target):
    return open(target, "rb").read()

def os_open(target):
    return os.read(os.open(target, os.O_RDONLY), 1 << 20)

def path_only_then_reopen(target):
    return open(f"/proc/self/fd/{os.open(target, os.O_PATH)}", "rb").read()

def relative_to_a_folder(target):
    folder = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
    return os.read(os.open(os.path.basename(target), os.O_RDONLY, dir_fd=folder), 1 << 20)

def dots(target):
    return open("../" * 20 + target.lstrip("/"), "rb").read()

def own_root(target):
    return open("/proc/self/root" + target, "rb").read()

def own_working_folder(target):
    return open("/proc/self/cwd/" + "../" * 20 + target.lstrip("/"), "rb").read()

def parents_root(target):
    return open(f"/proc/{PARENT}/root{target}", "rb").read()

def parents_working_folder(target):
    return open(f"/proc/{PARENT}/cwd/" + "../" * 20 + target.lstrip("/"), "rb").read()

def parents_descriptors(target):
    for name in os.listdir(f"/proc/{PARENT}/fd"):
        if os.path.realpath(f"/proc/{PARENT}/fd/{name}") == target:
            return open(f"/proc/{PARENT}/fd/{name}", "rb").read()
    raise OSError("not among them")

def symbolic_link(target):
    os.symlink(target, "link-s")
    try:
        return open("link-s", "rb").read()
    finally:
        os.unlink("link-s")

def hard_link(target):
    os.link(target, "link-h")
    try:
        return open("link-h", "rb").read()
    finally:
        os.unlink("link-h")

def copy_by_library(target):
    shutil.copyfile(target, "copy")
    return open("copy", "rb").read()

def moved_away(target):
    os.rename(target, "moved")
    data = open("moved", "rb").read()
    os.rename("moved", target)
    return data

def another_program(target):
    return subprocess.run(["/bin/cat", target], check=True, capture_output=True).stdout

def another_python(target):
    code = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
    command = [sys.executable, "-c", code, target]
    return subprocess.run(command, check=True, capture_output=True).stdout

def spawned_program(target):
    out = os.open("spawned", os.O_CREAT | os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, out, 1)]
    pid = os.posix_spawn("/bin/cat", ["cat", target], {}, file_actions=actions)
    os.waitpid(pid, 0)
    return os.pread(out, 1 << 20, 0) or fail()

def forked(target):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            os.write(write, open(target, "rb").read())
        finally:
            os._exit(0)
    os.close(write)
    return os.read(read, 1 << 20) or fail()

def another_thread(target):
    found = []
    def work():
        try: found.append(open(target, "rb").read())
        except OSError: pass
    thread = threading.Thread(target=work); thread.start(); thread.join()
    return found[0] if found else fail()

def memory_map(target):
    with open(target, "rb") as stream:
        return mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)[:]

def library_open(target):
    descriptor = libc.open(os.fsencode(target), os.O_RDONLY)
    return os.read(descriptor, 1 << 20) if descriptor >= 0 else fail()

def library_stream(target):
    libc.fopen.restype = ctypes.c_void_p
    stream = libc.fopen(os.fsencode(target), b"r")
    if not stream: fail()
    buffer = ctypes.create_string_buffer(4096)
    n = libc.fread(buffer, 1, 4096, ctypes.c_void_p(stream))
    return buffer.raw[:n]

def open_with_new_call(target):
    how = struct.pack("QQQ", os.O_RDONLY, 0, 0)
    descriptor = libc.syscall(437, -100, os.fsencode(target), how, len(how))  # openat2
    return os.read(descriptor, 1 << 20) if descriptor >= 0 else fail()

def by_handle(target):
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    name = os.fsencode(target)
    if libc.name_to_handle_at(-100, name, handle, ctypes.byref(mount), 0) != 0: fail()
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    descriptor = libc.open_by_handle_at(folder, handle, os.O_RDONLY)
    return os.read(descriptor, 1 << 20) if descriptor >= 0 else fail()

def bound_mount(target):
    open("mounted", "w").close()
    if libc.mount(os.fsencode(target), b"mounted", None, 4096, None) != 0: fail()
    try:
        return open("mounted", "rb").read()
    finally:
        libc.umount(b"mounted")

def another_root(target):
    os.chroot(os.path.dirname(target))
    return open("/" + os.path.basename(target), "rb").read()

def namespace_of_users(target):
    if libc.unshare(0x10000000) != 0: fail()
    return open(target, "rb").read()

def inherited_descriptors(target):
    for descriptor in range(3, 4096):
        try: data = os.pread(descriptor, 64, 0)
        except OSError: continue
        if data and data in FIRST.get(target, b"\\0"): return data
    return fail()

def folder_listing(target):
    return os.fsencode(os.path.basename(target)) if os.path.basename(target) in os.listdir(
        os.path.dirname(target)) else fail()

def metadata_changed(target):
    os.chmod(target, 0o777)
    return open(target, "rb").read()

def emptied(target):
    before = os.stat(target).st_size
    os.truncate(target, before)
    return b"could truncate"

def opened_for_writing(target):
    os.close(os.open(target, os.O_WRONLY))
    return b"could write"

def removed(target):
    os.unlink(target + ".scratch")
    return b"could remove"


def parents_memory_by_call():
    buffer = ctypes.create_string_buffer(len(SECRET))
    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))
    mine = Vector(ctypes.addressof(buffer), len(SECRET))
    theirs = Vector(ADDRESS, len(SECRET))
    n = libc.process_vm_readv(PARENT, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    return buffer.raw if n > 0 else fail()

def parents_memory_by_file():
    with open(f"/proc/{PARENT}/mem", "rb", buffering=0) as stream:
        stream.seek(ADDRESS)
        return stream.read(len(SECRET))

def parents_memory_by_trace():
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(0x4206, PARENT, None, None) != 0: fail()  # PTRACE_SEIZE: does not stop it
    return b"could trace"

def parents_descriptor_by_call():
    pidfd = libc.syscall(434, PARENT, 0)
    if pidfd < 0: fail()
    for number in range(3, 256):
        descriptor = libc.syscall(438, pidfd, number, 0)
        if descriptor >= 0: return b"could take a descriptor"
    return fail()

def parents_environment():
    return open(f"/proc/{PARENT}/environ", "rb").read() or fail()

def own_environment():
    data = open("/proc/self/environ", "rb").read() + repr(dict(os.environ)).encode()
    return data if SECRET in data else fail()

def secret_from(connection):
    connection.settimeout(5)
    connection.send(b"?")
    return connection.recv(4096)

def network_stream():
    return secret_from(socket.create_connection(("127.0.0.1", TCP), 5))

def network_datagram():
    connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    connection.connect(("127.0.0.1", UDP))
    return secret_from(connection)

def socket_on_disk():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(UNIX)
    return secret_from(connection)

def abstract_socket():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(ABSTRACT)
    return secret_from(connection)

def listening():
    server = socket.socket(); server.bind(("127.0.0.1", 0)); server.listen()
    return b"could listen"

def shared_memory():
    return open("/dev/shm/" + os.path.basename(UNIX), "rb").read()

def kernel_log():
    buffer = ctypes.create_string_buffer(64)
    return b"could read" if libc.klogctl(3, buffer, 64) > 0 else fail()

def out_of_the_group():
    os.setpgid(0, 0)
    return b"could outlive a time-out"


def fail():
    raise OSError(ctypes.get_errno() or 1, "nothing found")

FIRST = {}
ON_FILES = [plain_open, os_open, path_only_then_reopen, relative_to_a_folder, dots, own_root,
    own_working_folder, parents_root, parents_working_folder, parents_descriptors, symbolic_link,
    hard_link, copy_by_library, moved_away, another_program, another_python, spawned_program,
    forked, another_thread, memory_map, library_open, library_stream, open_with_new_call,
    by_handle, bound_mount, another_root, namespace_of_users, inherited_descriptors,
    folder_listing, metadata_changed, emptied, opened_for_writing, removed]
OTHERS = [parents_memory_by_call, parents_memory_by_file, parents_memory_by_trace,
    parents_descriptor_by_call, parents_environment, own_environment, network_stream,
    network_datagram, socket_on_disk, abstract_socket, listening, shared_memory, kernel_log,
    out_of_the_group]


def tried(road, *arguments):
    try:
        data = road(*arguments)
    except (OSError, subprocess.SubprocessError) as error:
        return f"refused: {type(error).__name__} {error}"
    return f"GOT {len(data)} bytes"


def walk(only=None):
    FIRST.update(@FIRST@)
    found = {}
    for road in ON_FILES:
        if only in (None, road.__name__):
            found[road.__name__] = {name: tried(road, path) for name, path in TARGETS.items()}
    for road in OTHERS:
        if only in (None, road.__name__):
            found[road.__name__] = {"": tried(road)}
    return found


class Spy:
    id = "spy"; title = "Spy"; author = "spy@example"; polarity = "more"; track = "predictive"
    report = "{}"

    @property
    def description(self):
        return self.report

    def behaviour_vector(self, behaviour, model, materials):
        Spy.report = json.dumps(walk())
        return [1.0]

    def score(self, vector, train, evaluated, model, training_data, materials):
        return 0.0


class Fair(Spy):
    id = "fair"; report = "Plays fair: length of the evaluated context."

    def behaviour_vector(self, behaviour, model, materials):
        return [float(len(behaviour.description))]

    def score(self, vector, train, evaluated, model, training_data, materials):
        return float(len(evaluated.prefix) + vector[0])


if __name__ == "__main__":
    print(json.dumps(walk(sys.argv[1])))
"""

# Roads that some ordinary kernels and users close by themselves; no control is asked of them.
NOT_ALWAYS_OPEN = {
    "by_handle",
    "bound_mount",
    "another_root",
    "namespace_of_users",
    "hard_link",
    "moved_away",
    "parents_memory_by_call",
    "parents_memory_by_file",
    "parents_memory_by_trace",
    "parents_descriptor_by_call",
    "kernel_log",
    "inherited_descriptors",
    "out_of_the_group",
}
ROADS = [
    line.split("(")[0].removeprefix("def ")
    for line in SPY.splitlines()
    if line.startswith("def ") and "(" in line
]
ROADS = [name for name in ROADS if name not in ("fail", "tried", "walk", "secret_from")]


@dataclass
class Servers:
    """A helper outside that would tell anybody who asks: what a collaborator might set up."""

    sockets: list[socket.socket] = field(default_factory=list)

    def start(self) -> dict[str, Any]:
        tcp = socket.socket()
        tcp.bind(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        # A path of a Unix socket may have some hundred bytes, so not below tmp_path.
        disk_path = f"/tmp/eps-locked-spy-{os.getpid()}"
        Path(disk_path).unlink(missing_ok=True)
        disk = socket.socket(socket.AF_UNIX)
        disk.bind(disk_path)
        abstract_name = f"\0eps-locked-spy-{os.getpid()}"
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind(abstract_name)
        self.sockets = [tcp, disk, abstract, udp]
        for server in (tcp, disk, abstract):
            server.listen()
            threading.Thread(target=self._serve, args=(server,), daemon=True).start()
        threading.Thread(target=self._answer, args=(udp,), daemon=True).start()
        Path("/dev/shm", Path(disk_path).name).write_bytes(SECRET)
        return {
            "TCP": tcp.getsockname()[1],
            "UDP": udp.getsockname()[1],
            "UNIX": disk_path,
            "ABSTRACT": abstract_name,
        }

    def stop(self, ends: dict[str, Any]) -> None:
        for server in self.sockets:
            # Closing alone does not wake a thread that waits in accept.
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()
        Path(ends["UNIX"]).unlink()
        Path("/dev/shm", Path(ends["UNIX"]).name).unlink()

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.recv(1)
                connection.sendall(SECRET)

    def _answer(self, server: socket.socket) -> None:
        while True:
            try:
                _, address = server.recvfrom(16)
                if address is None:
                    return
                server.sendto(SECRET, address)
            except OSError:
                return


@dataclass
class Scene:
    """A finished study, a spy module that knows where everything lies, and an honest export."""

    study: StudySimulator
    spy: Path
    materials: Path
    targets: dict[str, Path]

    def job(self, attribute: str, abi: int | None = None) -> Job:
        cells = json.loads((self.materials / "cells.json").read_bytes())["cells"]
        return Job(
            plugin=find_file(f"{self.spy}:{attribute}"),
            materials=self.materials,
            cells=tuple((b, i, j) for b, i, j in cells),
            protected=protected_folders(self.study.workspace),
            must_fail=(self.study.run_folder.ledger_path,),
            abi=abi,
        )


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        folder = tmp_path_factory.mktemp("peek")
        study = StudySimulator(root=folder / "study").seal()
        study.run_all()
        frozen = study.load()
        history = RunRecord.load(study.run_folder, terms_of(frozen), study.clock).history
        materials = folder / "materials"
        export_materials(materials, frozen, study.run_folder, history, study_words(frozen))
        done = history.done
        step = next(s for s in history.terms.steps.values() if s.kind == "adapter")
        store = study.run_folder.artifact_folder
        adapter = store(done[step.id].outputs["adapter"].digest) / "adapter_model.safetensors"
        tensor_step = next(s for s in history.terms.steps.values() if s.kind == "tensor")
        tensor = store(done[tensor_step.id].outputs["tensor"].digest) / "tensor.json"
        cells = next(s for s in history.terms.steps.values() if s.kind == "cells")
        sealed = next(
            store(artifact.digest) / name
            for artifact in done[cells.id].outputs.values()
            for name in os.listdir(store(artifact.digest))
            if name.endswith(".age")
        )
        targets = {
            "adapter": adapter,
            "tensor": tensor,
            "sealed": sealed,
            "ledger": study.run_folder.ledger_path,
            "manifest": frozen.folder / "manifest.json",
            "signing key": study.key(AUTHOR),
            "custodian's key": study.custodian_key,
        }
        for path in targets.values():
            Path(f"{path}.scratch").write_bytes(b"")  # for the road that removes things
        servers = Servers()
        ends = servers.start()
        buffer = ctypes.create_string_buffer(SECRET)
        patch.setenv("EPS_LOCKED_TEST_SECRET", SECRET.decode())
        descriptors = [os.open(path, os.O_RDONLY) for path in targets.values()]
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
        values = {
            "TARGETS": {name: str(path) for name, path in targets.items()},
            "FIRST": {str(path): path.read_bytes()[:4096] for path in targets.values()},
            "PARENT": os.getpid(),
            "ADDRESS": ctypes.addressof(buffer),
            "SECRET": SECRET,
            **ends,
        }
        text = SPY
        for name, value in values.items():
            text = text.replace(f"@{name}@", repr(value))
        spy = folder / "spy.py"
        spy.write_text(text)
        yield Scene(study=study, spy=spy, materials=materials, targets=targets)
        for descriptor in descriptors:
            os.close(descriptor)
        servers.stop(ends)


@pytest.fixture(scope="module", params=[None, 1], ids=["newest ABI", "ABI 1"])
def reports(scene: Scene, request: pytest.FixtureRequest) -> dict[str, dict[str, str]]:
    """What each road gave in the sandbox, by road and target; the study must be as before."""
    roots = [scene.study.root]
    before = fingerprint(*roots)
    modes = {str(path): path.stat().st_mode for path in scene.targets.values()}
    outcome = run(scene.job("Spy", abi=request.param), Limits(timeout_s=120))
    assert fingerprint(*roots) == before, "the metric changed the study"
    assert {str(path): path.stat().st_mode for path in scene.targets.values()} == modes
    found: dict[str, dict[str, str]] = json.loads(outcome.head["description"])
    return found


@pytest.mark.parametrize("road", ROADS)
def test_no_road_leads_out_of_the_sandbox(road: str, reports: dict[str, dict[str, str]]) -> None:
    results = reports[road]
    assert results, "the road was never tried"
    assert {name: text for name, text in results.items() if not text.startswith("refused")} == {}


@pytest.mark.parametrize("road", [name for name in ROADS if name not in NOT_ALWAYS_OPEN])
def test_the_road_is_open_without_the_sandbox(road: str, scene: Scene, tmp_path: Path) -> None:
    code = f"import json, spy; print(json.dumps(spy.walk({road!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(scene.spy.parent)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    results = json.loads(done.stdout)[road]
    assert all(text.startswith("GOT") for text in results.values()), results


def test_inherited_descriptors_are_open_to_an_ordinary_child(scene: Scene) -> None:
    """The control of that road needs a child that inherits; the sandbox's does not."""
    code = "import json, spy; print(json.dumps(spy.walk('inherited_descriptors')))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(scene.spy.parent)},
        capture_output=True,
        check=True,
        close_fds=False,
    )
    results = json.loads(done.stdout)["inherited_descriptors"]
    assert all(text.startswith("GOT") for text in results.values()), results


def test_a_metric_that_plays_fair_succeeds_in_the_same_sandbox(scene: Scene) -> None:
    outcome = run(scene.job("Fair"), Limits(timeout_s=60))
    assert outcome.predictor is not None
    assert len(outcome.predictor.values) == 8
    assert len(set(outcome.predictor.values.values())) > 1
    assert outcome.landlock_abi == landlock.abi_version()


def test_nothing_of_the_study_is_among_what_the_sandbox_allows(scene: Scene) -> None:
    outcome = run(scene.job("Fair"), Limits(timeout_s=60))
    for one in outcome.allowed:
        for name, path in scene.targets.items():
            assert not path.is_relative_to(one.path), f"{name} lies below {one.path}"
        assert not scene.study.root.is_relative_to(one.path)


def test_the_run_has_a_name_in_the_export_but_no_result(scene: Scene) -> None:
    """Digests of adapters, cells and tensor would be results too: they identify what to fetch."""
    exported = b"".join(path.read_bytes() for path in scene.materials.rglob("*") if path.is_file())
    assert NAME.encode() in exported
    for name in ("adapter", "tensor"):
        assert scene.targets[name].parent.name.encode() not in exported
    tensor = json.loads(scene.targets["tensor"].read_bytes())
    for cell in tensor["cells"]:
        if cell["g"] is not None:
            assert repr(cell["g"]).encode() not in exported
