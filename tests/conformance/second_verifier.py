"""A second verifier, written from docs/lock.md alone: ``python second_verifier.py ROOT NAME``.

It shares no line with eps_locked. It needs the standard library, ``blake3`` and OpenSSH's
``ssh-keygen``, reads one study below ROOT and prints every failure as ``file: what``; an empty
list means that everything it can see holds. The marks in brackets are rules of docs/lock.md.

What it leaves to eps_locked's own audit: the exact ends of the intervals, their standard errors and
degrees of freedom (here only that intervals are centred on their value), the variances of the
resolution block, the Parquet copy of the tensor, the checker's own sources (C4), reading the
material's YAML (so the draw of the items and the step list as a whole), whether token ids spell the
texts beside them, the numbers of phase P3, the scores of a look, and everything that takes the
custodian's key.
"""

from __future__ import annotations

import base64
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import blake3

MAX_INTEGER = 2**53 - 1
KINDS = {"open", "step", "aborted", "amendment", "close", "submission", "look", "score"}
STATUSES = ("done", "failed", "implant_failed", "unscored")
EXCLUDING = {"unscored", "floor", "ceiling", "implant_failed", "divergence", "alias", "sealed"}
SEALED = ["readings.json.age", "sealed.json"]
AGE = b"age-encryption.org/v1\n"
TRACKS = ("predictive", "post_hoc")
# Kinds of phase P3, whose numbers are not looked at here.
BASELINES = {"activations", "divergence", "elicitation", "projection", "baselines"}
N_CHECKS = 15
METHODS = {
    1: "t over questions, for this one seed alone",
    2: "t, seed variance pooled over the row's cells, Satterthwaite degrees of freedom",
}
BEGIN, END = b"-----BEGIN SSH SIGNATURE-----\n", b"-----END SSH SIGNATURE-----\n"


class Bad(Exception):
    """Something does not hold."""


# What garbage in a file can raise on its way through the checks below; any of it is a failure.
GARBAGE = (Bad, ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)


# -- bytes, digests, canonical JSON [L1, L2] -------------------------------------------------------


def digest(data: bytes) -> str:
    return "blake3:" + blake3.blake3(data).hexdigest()


def number_text(number: float) -> str:
    """A finite number as ECMAScript writes it [L2.4]."""
    if not math.isfinite(number):
        raise Bad("a number is not finite")
    if number == 0:
        return "0"
    sign, digit_tuple, exponent = Decimal(repr(number)).as_tuple()
    assert isinstance(exponent, int)
    point = len(digit_tuple) + exponent  # where the decimal point stands, counted in digits
    digits = "".join(map(str, digit_tuple)).rstrip("0")
    n = len(digits)
    if n <= point <= 21:
        text = digits + "0" * (point - n)
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        mantissa = digits if n == 1 else f"{digits[0]}.{digits[1:]}"
        text = f"{mantissa}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return "-" + text if sign else text


def canonical(value: Any) -> bytes:
    """RFC 8785 [L2]."""
    return _canonical(value).encode("utf-8")  # a lone surrogate fails here


def _canonical(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join([f"{_canonical(key)}:{_canonical(value[key])}" for key in keys]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, float):
        return number_text(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if abs(value) > MAX_INTEGER:
        raise Bad("an integer is beyond 2**53 - 1")
    return str(int(value))


def parse(data: bytes) -> Any:
    """The value of canonical bytes; any other spelling of it is refused [L2.5]."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise Bad("a key stands twice")
        return dict(pairs)

    def plain(text: str) -> int | float:
        """A double from 2^53 on is written without a point, too [L2.2]."""
        return int(text) if len(text) < 17 or abs(int(text)) <= MAX_INTEGER else float(text)

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_int=plain)
    except (ValueError, RecursionError) as error:
        raise Bad(f"not JSON ({error})") from error
    if canonical(value) != data:
        raise Bad("not in canonical form")
    return value


def envelope(data: bytes, schema: str) -> tuple[Any, str]:
    """(payload, digest) of a sealed document [L3]."""
    value = parse(data)
    if not isinstance(value, dict) or set(value) != {"digest", "payload"}:
        raise Bad("not {digest, payload}")
    same("digest", digest(canonical(value["payload"])), value["digest"])
    same("schema", schema, value["payload"]["schema"])
    return value["payload"], value["digest"]


# -- signatures [L13.1, L13.3] ---------------------------------------------------------------------


def require_signature(
    data: bytes, signature: bytes, allowed: bytes, signer: str, kind: str, at: str
) -> None:
    body = base64.b64encode(base64.b64decode(signature[len(BEGIN) : -len(END)]))
    lines = [body[start : start + 70] + b"\n" for start in range(0, len(body), 70)]
    if not body or signature != BEGIN + b"".join(lines) + END:
        raise Bad("the signature is not as ssh-keygen writes it")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "allowed").write_bytes(allowed)
        Path(folder, "sig").write_bytes(signature)
        command = ["ssh-keygen", "-Y", "verify", "-f", f"{folder}/allowed", "-I", signer]
        command += ["-n", f"eps-locked-{kind}", "-s", f"{folder}/sig"]
        command.append(f"-Overify-time={moment(at).strftime('%Y%m%d%H%M%SZ')}")
        if subprocess.run(command, input=data, capture_output=True, check=False).returncode:
            raise Bad(f"no good eps-locked-{kind} signature by {signer}")


# -- the shape of a document -----------------------------------------------------------------------

# Field by field, NAME:FORM. Forms: t text, d digest, n count, r number, b flag, w time, m mapping,
# or a shape of this table; ``?`` or null, ``*`` a list of it, ``%`` a mapping to it.
SHAPES = {
    "manifest": "schema:t name:t title:t study:t author:t frozen_at:w plan:d phases:t* "
    "files:file% sources:file% model_files:file% code:d environment:d self_authorization:b "
    "auto_approve_ms:n publication:b summary:n%",
    "file": "digest:d size:n",
    "step-list": "schema:t steps:promise*",
    "promise": "id:t phase:t kind:t seed:n? params:t% inputs:t% outputs:t* estimate_ms:n",
    "head": "schema:t seq:n digest:d",
    "line": "schema:t seq:n prev:d kind:t at:w",
    "leave": "document:d signature:d",
    "open": "phase:t authorization:leave cap_ms:n self_authorized:b lock_head:d code:d "
    "environment:d engine:m",
    "artifact": "digest:d files:file%",
    "step": "step:t phase:t status:t seed:n? inputs:d% outputs:artifact% flags:t* code:d "
    "environment:d engine:d started:w ended:w compute_ms:n",
    "aborted": "step:t phase:t reason:t compute_ms:n",
    "amendment": "number:n amendment:d signature:d lock_head:d rebind:d%",
    "close": "phase:t results:d n_steps:n compute_ms:n",
    "submission": "number:n submission:artifact author:t metric:t track:t looks_before:looks",
    "looks": "author:n any:n",
    "look": "number:n submission:n verdict:d informed:b",
    "score": "look:n status:t result:artifact? reason:t",
    "submission document": "schema:t name:t manifest:d author:t metric:t title:t track:t "
    "polarity:t predictor:d",
    "result document": "schema:t name:t manifest:d look:n submission:d scores:m",
    "predictor": "schema:t metric:t title:t author:t track:t polarity:t description:t "
    "cells:prediction*",
    "prediction": "behaviour:t train:t eval:t value:r",
    "blind prediction": "behaviour:t train:t eval:t value:r blind:r",
    "final scores": "schema:t label:t rounded:b settings:m methods:m submission:m references:m* "
    "behaviours:m* pooled:m",
    "sealed": "schema:t recipients:d files:commitment%",
    "commitment": "plaintext:d",
    "authorization document": "schema:t name:t root:t manifest:d lock_head:d phase:t cap_ms:n "
    "signer:t self_authorized:b issued_at:w expires_at:w",
    "amendment document": "schema:t name:t manifest:d number:n previous_lock_head:d ledger_head:d "
    "signer:t at:w reason:t changes:t* rebind:d% seen:t",
    "verdict": "schema:t name:t manifest:d ledger_head:d n_entries:n complete:b publishable:b "
    "code:d ok:b checks:check*",
    "check": "number:n title:t ok:b n_examined:n failures:t*",
    "readings": "schema:t behaviour:t context:t answers:answer*",
    "answer": "item:t token_ids:n* text:t stop_reason:t marker_emitted:b slot_index:n own:reading "
    "frozen:reading?",
    "reading": "log_prob:r marker_logits:r* log_z:r* end_of_turn_logit:r",
    "headroom": "schema:t behaviour:t unreachable_above:r base_log_prob:r% source_log_prob:r% "
    "unreachable:t*",
    "prompts": "schema:t context:t probes:n** prefix:n* suffixes:n*%",
}


def matches(value: Any, form: str) -> bool:
    inner = form[:-1]
    if form.endswith("?"):
        return value is None or matches(value, inner)
    if form.endswith("*"):
        return isinstance(value, list) and all(matches(item, inner) for item in value)
    if form.endswith("%"):
        return isinstance(value, dict) and all(matches(item, inner) for item in value.values())
    if form in SHAPES:
        require(value, form)
        return True
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if form in "nr":
        return number and (form == "r" or (isinstance(value, int) and value >= 0))
    if form == "d":
        return isinstance(value, str) and bool(re.fullmatch(r"blake3:[0-9a-f]{64}", value))
    if form == "w":
        return bool(moment(value).strftime("%Y-%m-%dT%H:%M:%SZ") == value)
    return isinstance(value, {"t": str, "b": bool, "m": dict}[form])


def require(value: Any, *shapes: str) -> Any:
    """Every field of the shapes there, of its form, and no other field [L1.5]."""
    fields = dict(field.split(":") for shape in shapes for field in SHAPES[shape].split())
    odd = sorted(set(value) ^ set(fields)) if isinstance(value, dict) else ["no mapping"]
    odd = odd or [name for name, form in fields.items() if not matches(value[name], form)]
    if odd:
        raise Bad(f"{shapes[-1]}: field {odd[0]} is missing, unknown or of another form")
    return value


def same(thing: str, expected: Any, found: Any) -> None:
    if canonical(expected) != canonical(found):  # so that 1 is not true, and 1.0 is 1
        raise Bad(f"{thing}: expected {str(expected)[:90]}, found {str(found)[:90]}")


def near(thing: str, expected: Any, found: Any) -> None:
    if expected is None or found is None:
        same(thing, expected, found)
    elif not isinstance(found, int | float) or not math.isclose(
        expected, found, rel_tol=1e-12, abs_tol=1e-12
    ):
        raise Bad(f"{thing}: expected {expected!r}, found {found!r}")


def moment(stamp: str) -> datetime:
    return datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")


def mean(values: Any) -> float:
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers)


def mean_or_none(values: Any) -> float | None:
    """Over what is there; None of nothing."""
    numbers = [value for value in values if value is not None]
    return mean(numbers) if numbers else None


def walk(folder: Path) -> list[str]:
    """Every file and link below a folder, by POSIX name; links are not followed."""
    found = []
    for base, folders, names in os.walk(folder):
        links = [name for name in folders if Path(base, name).is_symlink()]
        found += [Path(base, name).relative_to(folder).as_posix() for name in [*names, *links]]
    return sorted(found)


class Plan:
    """Single values of the frozen plan without reading YAML: each key stands once [L16.2]."""

    def __init__(self, data: bytes) -> None:
        lines = data.decode("utf-8").splitlines()
        self.text = "\n".join(re.sub(r"(^|\s)#.*", "", line) for line in lines)

    def after(self, key: str, value: str) -> list[tuple[str, str]]:
        """(what ``value`` matches behind a key, all text behind that), for each place of it."""
        pattern = rf"""(?:^|[{{,])[\s-]*["']?{key}["']?\s*:({value})"""
        found = re.finditer(pattern, self.text, re.MULTILINE)
        return [(match[1], self.text[match.end() :]) for match in found]

    def only(self, key: str, value: str) -> tuple[str, str]:
        found = self.after(key, value)
        if len(found) != 1:
            raise Bad(f"plan: expected {key} once, found it {len(found)} times")
        return found[0]

    def word(self, key: str) -> str:
        return self.only(key, r"""\s*["']?[^\s,"'}]+""")[0].strip(" \n\"'")

    def number(self, key: str) -> float:
        return float(self.word(key))

    def numbers(self, key: str) -> list[int]:
        """A list of counts, in either of YAML's two forms."""
        text, _ = self.only(key, r"\s*(?:\[[^]]*\]|(?:\n\s*-[ ]*\d+)+)")
        return [int(number) for number in re.findall(r"\d+", text)]

    def number_of(self, part: str, key: str) -> float:
        """A key that stands in several parts of a plan: its first place behind the part's own."""
        _, rest = self.only(part, r"\s*\{?")
        found = re.search(rf"""\b{key}["']?\s*:\s*(-?[\d.eE+-]+)""", rest)
        if found is None:
            raise Bad(f"plan: no {key} of {part}")
        return float(found[1])

    def seed_of(self, part: str) -> int:
        return int(self.number_of(part, "seed"))


class Verifier:
    """One pass over one study. ``failures`` is what it found."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        self.frozen = root / "manifests" / name
        self.run = root / "runs" / name
        self.failures: list[str] = []
        self.manifest: Any = None
        self.manifest_digest = ""
        self.steps: dict[str, Any] = {}
        self.entries: list[Any] = []
        self.digests: list[str] = []  # of the ledger's lines
        self.done: dict[str, Any] = {}
        self.before: list[tuple[str, str]] = []  # each amendment: lock head, and what was seen
        self.closed: set[str] = set()
        self.submissions: list[Any] = []
        self.looks: list[Any] = []
        self.scores: dict[int, Any] = {}

    @contextmanager
    def noting(self, where: Path | str) -> Iterator[None]:
        """A failure inside is noted against a file, and the pass goes on."""
        try:
            yield
        except GARBAGE as error:
            name = where.relative_to(self.root) if isinstance(where, Path) else where
            self.failures.append(f"{name}: {error if isinstance(error, Bad) else repr(error)}")

    def read(self, path: Path) -> bytes:
        """Bytes of a regular file; no link anywhere on the way [L4.3]."""
        below = path.relative_to(self.root)
        for part in [*reversed(below.parents), below]:
            if (self.root / part).is_symlink():
                raise Bad("a symbolic link on the way")
        if ".." in below.parts or not path.is_file():
            raise Bad("missing, or no regular file")
        return path.read_bytes()

    def listed(self, path: Path, record: Any) -> bytes:
        data = self.read(path)
        same("bytes", record, {"digest": digest(data), "size": len(data)})
        return data

    def verify(self) -> list[str]:
        with self.noting(self.frozen / "manifest.json"):
            self.check_manifest()
        if self.manifest is None:
            return sorted(self.failures)
        self.check_frozen()
        with self.noting(self.frozen / "frozen/steps.json"):
            self.check_steps()
        with self.noting(self.frozen / "frozen/allowed_signers"):
            self.check_signers()
        self.check_ledger()
        self.check_history()
        self.check_signed()
        self.check_artifacts()
        if not self.failures:
            with self.noting(self.frozen / "frozen"):
                Study(self).check()
            with self.noting(self.run / "ledger.jsonl"):
                self.check_looks()
        self.check_complete()
        self.check_layout()
        return sorted(set(self.failures))

    # -- manifest [L5] and frozen files [L6] --

    def check_manifest(self) -> None:
        data = self.read(self.frozen / "manifest.json")
        payload, self.manifest_digest = envelope(data, "eps-locked/manifest/1")
        self.manifest = require(payload, "manifest")
        same("name", self.name, payload["name"])
        files, sources = payload["files"], payload["sources"]
        for path, key in (("plan.yaml", "plan"), ("code.json", "code")):
            same(key, files[f"frozen/{path}"]["digest"], payload[key])
        same("environment", files["frozen/environment.json"]["digest"], payload["environment"])
        same("sources", files["frozen/plan.yaml"], sources[f"{self.name}.yaml"])
        for path, record in sources.items():
            if path != f"{self.name}.yaml":
                same(f"sources {path}", record, files[f"frozen/sources/{path}"])
        # What the manifest says for the gate must be what the frozen plan says [L5.4].
        plan = Plan(self.frozen_bytes("plan.yaml"))
        hours = plan.number("auto_approve_gpu_hours")
        same("auto_approve_ms", round(hours * 3_600_000), payload["auto_approve_ms"])
        for key in ("author", "self_authorization", "publication"):
            said = payload[key] if key == "author" else json.dumps(payload[key])
            same(key, plan.word(key), said)
        if not payload["phases"] or len(set(payload["phases"])) != len(payload["phases"]):
            raise Bad("phases: expected distinct ones, at least one")

    def check_frozen(self) -> None:
        for path, record in self.manifest["files"].items():
            with self.noting(self.frozen / path):
                self.listed(self.frozen / path, record)
        for path in walk(self.frozen):
            if path not in {"manifest.json", *self.manifest["files"]}:
                self.failures.append(f"manifests/{self.name}/{path}: not listed in the manifest")
        for path, record in self.manifest["sources"].items():
            source = self.root / "plans" / path
            if source.exists() or source.is_symlink():  # absent is allowed [L6.6]
                with self.noting(source):
                    self.listed(source, record)

    def frozen_bytes(self, name: str) -> bytes:
        """A frozen file by its name below ``frozen/``, verified."""
        path = f"frozen/{name}"
        return self.listed(self.frozen / path, self.manifest["files"][path])

    def json(self, name: str) -> Any:
        return parse(self.frozen_bytes(name))

    def check_steps(self) -> None:
        document = require(self.json("steps.json"), "step-list")
        same("schema", "eps-locked/steps/1", document["schema"])
        for step in document["steps"]:
            if step["id"] in self.steps or step["phase"] not in self.manifest["phases"]:
                raise Bad(f"{step['id']}: listed twice, or of no known phase")
            for reference in step["inputs"].values():
                kind, _, rest = reference.partition(":")
                needed, _, output = rest.partition("#")
                earlier = self.steps.get(needed, {"outputs": ()})["outputs"]
                known = rest in self.manifest["files"] if kind == "file" else output in earlier
                if kind not in ("file", "step") or not known:
                    raise Bad(f"{step['id']}: cannot read {reference}")
            self.steps[step["id"]] = step

    def check_signers(self) -> None:
        """One plain name a line, one key a name: else a key could sign as somebody else [L13.2]."""
        owners: dict[str, str] = {}
        for line in self.frozen_bytes("allowed_signers").splitlines():
            if line.strip() and not line.startswith(b"#"):
                name, *rest = line.decode().split()
                key = next(word for word in rest if word.startswith("AAAA"))
                if set(name) & set(' ,*?!"') or owners.setdefault(key, name) != name:
                    raise Bad(f"{name}: a pattern, or a key that two names share")

    # -- ledger [L8] and head [L9] --

    def check_ledger(self) -> None:
        path = self.run / "ledger.jsonl"
        prev = self.genesis()
        data = b""
        with self.noting(path):
            data = self.read(path)
            if not data.endswith(b"\n"):
                raise Bad("empty, or ends in a torn line")
        for seq, line in enumerate(data.split(b"\n")[:-1]):
            entry = None
            with self.noting(f"runs/{self.name}/ledger.jsonl: line {seq + 1}"):
                value = parse(line)
                expected_prev, prev = prev, digest(canonical(value["payload"]))
                payload, _ = envelope(line, "eps-locked/ledger/1")
                if payload["kind"] not in KINDS:
                    raise Bad("kind: unknown")
                require(payload, "line", payload["kind"])
                same("seq", seq, payload["seq"])
                same("prev", expected_prev, payload["prev"])
                entry = payload
            self.entries.append(entry)
            self.digests.append(prev)
        with self.noting(self.run / "head.json"):
            if (self.run / "head.json").exists() or len(self.digests) > 1:
                head, _ = envelope(self.read(self.run / "head.json"), "eps-locked/head/1")
                require(head, "head")
                last = list(enumerate(self.digests))[-2:]
                if (head["seq"], head["digest"]) not in last:
                    raise Bad("names no entry the ledger ends with: cut or replaced")

    def genesis(self) -> str:
        start = {"schema": "eps-locked/genesis/1", "manifest": self.manifest_digest, "root": "runs"}
        return digest(canonical(start))

    # -- what may follow what [L10] --

    def check_history(self) -> None:
        terms = self.manifest
        state: dict[str, Any] = {
            **{"session": None, "lock_head": self.manifest_digest, "spent": {}, "slowest": {}},
            **{"code": terms["code"], "environment": terms["environment"]},
        }
        for line, entry in enumerate(self.entries, start=1):
            if entry is not None:
                with self.noting(f"runs/{self.name}/ledger.jsonl: line {line}"):
                    getattr(self, f"on_{entry['kind']}")(entry, state)

    def check_complete(self) -> None:
        for phase in self.manifest["phases"]:
            left = [i for i, s in self.steps.items() if s["phase"] == phase and i not in self.done]
            if left or phase not in self.closed:
                what = f"phase {phase} is incomplete: {len(left)} steps open"
                self.failures.append(f"runs/{self.name}/ledger.jsonl: {what}")

    def on_open(self, entry: Any, state: Any) -> None:
        phases, phase = self.manifest["phases"], entry["phase"]
        if not set(phases[: phases.index(phase)]) <= self.closed or phase in self.closed:
            raise Bad(f"phase {phase}: out of order")
        for key in ("lock_head", "code", "environment"):
            same(key, state[key], entry[key])
        state["session"] = entry

    def session(self, entry: Any, state: Any) -> Any:
        if state["session"] is None or state["session"]["phase"] != entry["phase"]:
            raise Bad(f"no open session on {entry['phase']}")
        return state["session"]

    def cost(self, step: Any, state: Any) -> int:
        """What a step is expected to cost [L11.1]."""
        return int(max(step["estimate_ms"], state["slowest"].get(step["kind"], 0)))

    def charge(self, entry: Any, state: Any) -> None:
        phase = entry["phase"]
        state["spent"][phase] = state["spent"].get(phase, 0) + entry["compute_ms"]

    def on_step(self, entry: Any, state: Any) -> None:
        session, step = self.session(entry, state), self.steps[entry["step"]]
        if step["id"] in self.done:
            raise Bad(f"{step['id']}: recorded twice")
        for key in ("phase", "seed"):
            same(key, step[key], entry[key])
        for key in ("code", "environment"):
            same(key, session[key], entry[key])
        same("engine", digest(canonical(session["engine"])), entry["engine"])
        same("inputs", {n: self.resolve(r) for n, r in step["inputs"].items()}, entry["inputs"])
        same("outputs", sorted(step["outputs"]), sorted(entry["outputs"]))
        spent = state["spent"].get(entry["phase"], 0)
        if spent + self.cost(step, state) > session["cap_ms"]:
            raise Bad(f"{step['id']}: started past the authorized cap")
        for artifact in entry["outputs"].values():
            self.named(artifact)
        self.charge(entry, state)
        slowest = state["slowest"].get(step["kind"], 0)
        state["slowest"][step["kind"]] = max(slowest, entry["compute_ms"])
        self.done[step["id"]] = entry

    def named(self, artifact: Any) -> None:
        """An artifact is named by what it holds [L12.2]."""
        same("artifact", digest(canonical({"files": artifact["files"]})), artifact["digest"])

    def identity(self, artifact: Any) -> str:
        """What stands for it in results: without encrypted files, if it has any [L12.5]."""
        plain = {n: record for n, record in artifact["files"].items() if not n.endswith(".age")}
        return digest(canonical({"files": plain}))

    def resolve(self, reference: str) -> str:
        kind, _, rest = reference.partition(":")
        if kind == "file":
            return str(self.manifest["files"][rest]["digest"])
        step, _, output = rest.partition("#")
        return str(self.done[step]["outputs"][output]["digest"])

    def on_aborted(self, entry: Any, state: Any) -> None:
        self.session(entry, state)
        if self.steps[entry["step"]]["phase"] != entry["phase"] or entry["step"] in self.done:
            raise Bad(f"{entry['step']}: aborted in another phase, or after it was finished")
        self.charge(entry, state)

    def on_amendment(self, entry: Any, state: Any) -> None:
        same("number", len(self.before) + 1, entry["number"])
        link = {"schema": "eps-locked/lock-head/1", "previous": state["lock_head"]}
        expected = digest(canonical({**link, "amendment": entry["amendment"]}))
        same("lock_head", expected, entry["lock_head"])
        kinds = {self.steps[step]["kind"] for step in self.done}
        seen = "seen" if kinds & {"cells", "tensor"} else "run_unseen" if kinds else "nothing_run"
        self.before.append((state["lock_head"], seen))
        state |= {"lock_head": entry["lock_head"], "session": None, **entry["rebind"]}

    def on_close(self, entry: Any, state: Any) -> None:
        self.session(entry, state)
        phase = entry["phase"]
        steps = [step for step in self.steps.values() if step["phase"] == phase]
        rows = [
            {
                **{"step": step["id"], "status": self.done[step["id"]]["status"]},
                "outputs": {
                    name: self.identity(artifact)
                    for name, artifact in self.done[step["id"]]["outputs"].items()
                },
            }
            for step in steps
        ]
        results = {"schema": "eps-locked/results/1", "phase": phase, "steps": rows}
        same("n_steps", len(steps), entry["n_steps"])
        same("results", digest(canonical(results)), entry["results"])
        same("compute_ms", state["spent"].get(phase, 0), entry["compute_ms"])
        self.closed.add(phase)
        state["session"] = None

    # -- submissions and looks [L26] --

    def require_closed(self) -> None:
        if not set(self.manifest["phases"]) <= self.closed:
            raise Bad("before every phase was closed")

    def looks_by(self, author: str) -> int:
        name = author.casefold().strip()
        mine = [s["number"] for s in self.submissions if s["author"].casefold().strip() == name]
        return sum(look["submission"] in mine for look in self.looks)

    def on_submission(self, entry: Any, state: Any) -> None:
        self.require_closed()
        self.named(entry["submission"])
        same("number", len(self.submissions) + 1, entry["number"])
        before = {"author": self.looks_by(entry["author"]), "any": len(self.looks)}
        same("looks_before", before, entry["looks_before"])
        self.submissions.append(entry)
        state["session"] = None

    def on_look(self, entry: Any, state: Any) -> None:
        self.require_closed()
        same("number", len(self.looks) + 1, entry["number"])
        if not 1 <= entry["submission"] <= len(self.submissions):
            raise Bad("a look at nothing that was submitted")
        submission = self.submissions[entry["submission"] - 1]
        same("informed", submission["looks_before"]["author"] > 0, entry["informed"])
        self.looks.append(entry)
        state["session"] = None

    def on_score(self, entry: Any, state: Any) -> None:
        if entry["look"] != len(self.looks) or entry["look"] in self.scores:
            raise Bad("the end of no look that is under way")
        if (entry["status"] == "scored") != (entry["result"] is not None):
            raise Bad("a result exactly if it was scored")
        if entry["status"] not in ("scored", "failed", "aborted"):
            raise Bad("status: unknown")
        if entry["result"] is not None:
            self.named(entry["result"])
        self.scores[entry["look"]] = entry

    def check_looks(self) -> None:
        verdicts = {
            digest(self.read(self.run / "verdicts" / name)): name
            for name in walk(self.run / "verdicts")
        }
        for entry in self.submissions:
            with self.noting(f"submission {entry['number']}"):
                self.check_submission(entry)
        for entry in self.looks:
            with self.noting(f"look {entry['number']}"):
                if entry["verdict"] not in verdicts:
                    raise Bad("the verdict it rests on is not there")
                path = self.run / "verdicts" / verdicts[entry["verdict"]]
                verdict, _ = envelope(self.read(path), "eps-locked/verdict/1")
                found = [verdict[key] for key in ("ok", "complete", "ledger_head")]
                same("verdict", [True, True, entry["prev"]], found)
        for entry in self.scores.values():
            with self.noting(f"score of look {entry['look']}"):
                if entry["result"] is not None:
                    self.check_result(entry)

    def artifact_file(self, artifact: Any, name: str) -> bytes:
        return self.listed(self.folder(artifact) / name, artifact["files"][name])

    def check_submission(self, entry: Any) -> None:
        artifact = entry["submission"]
        same("files", ["predictor.json", "submission.json"], sorted(artifact["files"]))
        stated = require(
            parse(self.artifact_file(artifact, "submission.json")), "submission document"
        )
        data = self.artifact_file(artifact, "predictor.json")
        predictor = parse(data)
        if any("blind" in cell for cell in predictor["cells"]):
            for cell in predictor["cells"]:
                require(cell, "blind prediction")
            plain = [{k: v for k, v in cell.items() if k != "blind"} for cell in predictor["cells"]]
            predictor = {**predictor, "cells": plain}
        require(predictor, "predictor")
        if stated["polarity"] not in ("more", "less") or entry["track"] not in TRACKS:
            raise Bad("polarity or track: unknown")
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", entry["metric"]) or not entry["author"].strip():
            raise Bad("metric or author: no such name")
        for key, value in (
            *(("schema", "eps-locked/submission/1"), ("name", self.name)),
            *(("manifest", self.manifest_digest), ("predictor", digest(data))),
            *((key, entry[key]) for key in ("author", "metric", "track")),
            *((k, predictor[k]) for k in ("author", "title", "metric", "track", "polarity")),
        ):
            same(key, value, stated[key])
        same("predictor schema", "eps-locked/predictor/1", predictor["schema"])
        cells = [f"{c['behaviour']}/{c['train']}/{c['eval']}" for c in predictor["cells"]]
        same("cells", sorted(self.json("split.json")["cells"]), sorted(cells))

    def check_result(self, entry: Any) -> None:
        files = ["result.json", "scores.json.age", "sealed.json"]
        same("files", files, sorted(entry["result"]["files"]))
        data = self.artifact_file(entry["result"], "result.json")
        document = require(parse(data), "result document")
        scores = require(document["scores"], "final scores")
        same("scores", ["eps-locked/final-scores/1", True], [scores["schema"], scores["rounded"]])
        if not self.artifact_file(entry["result"], files[1]).startswith(AGE):
            raise Bad("the details are no age file")
        look = self.looks[entry["look"] - 1]
        submission = self.submissions[look["submission"] - 1]["submission"]
        for key, value in (
            *(("schema", "eps-locked/look-result/1"), ("name", self.name)),
            *(("manifest", self.manifest_digest), ("look", entry["look"])),
            ("submission", submission["digest"]),
        ):
            same(key, value, document[key])

    # -- authorizations and amendments [L13, L14] --

    def documents(self, kind: str) -> Iterator[tuple[Path, bytes, bytes]]:
        """Every signed document of a kind in name order, and nothing else beside them."""
        folder = self.run / kind
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            with self.noting(path):
                if walk(path) != ["document.json", "document.json.sig"]:
                    raise Bad("expected document.json and document.json.sig, and no other file")
                file = path / "document.json"
                yield path, self.read(file), self.read(path / "document.json.sig")

    def check_signed(self) -> None:
        leave: dict[str, Any] = {}
        allowed = b""
        with self.noting(self.frozen / "frozen/allowed_signers"):
            allowed = self.frozen_bytes("allowed_signers")
        for path, data, signature in self.documents("authorizations"):
            with self.noting(path / "document.json"):
                payload, _ = envelope(data, "eps-locked/authorization/1")
                require(payload, "authorization document")
                same("manifest", self.manifest_digest, payload["manifest"])
                same("name", self.name, payload["name"])
                same("root", "runs", payload["root"])
                signer, at = payload["signer"], payload["issued_at"]
                require_signature(data, signature, allowed, signer, "authorization", at)
                leave[digest(data)] = (payload, digest(signature))
        for line, entry in enumerate(self.entries, start=1):
            if entry is not None and entry["kind"] == "open":
                with self.noting(f"runs/{self.name}/ledger.jsonl: line {line}"):
                    if entry["authorization"]["document"] not in leave:
                        raise Bad("no such authorization")
                    self.check_leave(entry, *leave[entry["authorization"]["document"]])
        recorded = [e for e in self.entries if e is not None and e["kind"] == "amendment"]
        documents = list(self.documents("amendments"))
        if len(documents) != len(recorded):
            what = f"{len(documents)} documents, {len(recorded)} recorded"
            self.failures.append(f"runs/{self.name}/amendments: {what}")
        for (path, data, signature), entry, before in zip(
            documents, recorded, self.before, strict=False
        ):
            with self.noting(path / "document.json"):
                self.check_amendment(data, signature, entry, *before)

    def check_leave(self, entry: Any, payload: Any, signature: str) -> None:
        same("signature", signature, entry["authorization"]["signature"])
        for key in ("phase", "cap_ms", "lock_head", "self_authorized"):
            same(key, payload[key], entry[key])
        if not payload["issued_at"] <= entry["at"] < payload["expires_at"]:
            raise Bad("opened outside the authorization's time")
        alone = payload["signer"] == self.manifest["author"]
        same("self_authorized", alone, payload["self_authorized"])
        if alone and not (
            self.manifest["self_authorization"]
            and payload["cap_ms"] <= self.manifest["auto_approve_ms"]
        ):
            raise Bad("the author may not authorize this alone")

    def check_amendment(
        self, data: bytes, signature: bytes, entry: Any, lock_head: str, seen: str
    ) -> None:
        payload, sealed = envelope(data, "eps-locked/amendment/1")
        require(payload, "amendment document")
        same("digest", entry["amendment"], sealed)
        same("signature", entry["signature"], digest(signature))
        if not set(payload["rebind"]) <= {"code", "environment"}:
            raise Bad("rebind: only code and environment can be")
        for key, value in (
            *(("manifest", self.manifest_digest), ("name", self.name)),
            *(("number", entry["number"]), ("rebind", entry["rebind"])),
            *(("previous_lock_head", lock_head), ("ledger_head", entry["prev"]), ("seen", seen)),
        ):
            same(key, value, payload[key])
        allowed, signer = self.frozen_bytes("allowed_signers"), payload["signer"]
        require_signature(data, signature, allowed, signer, "amendment", payload["at"])

    # -- artifacts [L12] and layout [L4] --

    def folder(self, artifact: Any) -> Path:
        return self.run / "artifacts" / str(artifact["digest"]).removeprefix("blake3:")

    def check_artifacts(self) -> None:
        recorded = {
            artifact["digest"]: artifact
            for entry in self.done.values()
            for artifact in entry["outputs"].values()
        }
        recorded |= {e["submission"]["digest"]: e["submission"] for e in self.submissions}
        results = [e["result"] for e in self.scores.values() if e["result"] is not None]
        recorded |= {artifact["digest"]: artifact for artifact in results}
        for artifact in recorded.values():
            folder = self.folder(artifact)
            with self.noting(folder):
                same("files", sorted(artifact["files"]), walk(folder))
            for name, record in artifact["files"].items():
                with self.noting(folder / name):
                    self.listed(folder / name, record)
        store = self.run / "artifacts"
        for path in sorted(store.iterdir()) if store.is_dir() else ():
            if f"blake3:{path.name}" not in recorded:
                where = path.relative_to(self.root)
                self.failures.append(f"{where}: no entry names this artifact")

    def check_layout(self) -> None:
        folders = {"artifacts", "authorizations", "amendments", "verdicts", "aside"}
        for path in sorted(self.run.iterdir()) if self.run.is_dir() else ():
            with self.noting(path):
                good = path.is_dir() if path.name in folders else path.is_file()
                if path.is_symlink() or not good:
                    raise Bad("neither a file nor a folder that belongs here")
                if path.name not in {*folders, "ledger.jsonl", "head.json"}:
                    raise Bad("a file that does not belong here")
        for name in walk(self.run / "verdicts"):
            with self.noting(self.run / "verdicts" / name):
                self.check_verdict(self.read(self.run / "verdicts" / name))

    def check_verdict(self, data: bytes) -> None:
        """A verdict names a state this ledger went through, and says what its checks say [L15]."""
        payload, _ = envelope(data, "eps-locked/verdict/1")
        require(payload, "verdict")
        checks = payload["checks"]
        same("checks", [n + 1 for n in range(N_CHECKS)], [check["number"] for check in checks])
        for check in checks:
            same(f"C{check['number']}", not check["failures"], check["ok"])
        same("ok", all(check["ok"] for check in checks), payload["ok"])
        same("name", self.name, payload["name"])
        same("manifest", self.manifest_digest, payload["manifest"])
        number = payload["n_entries"]
        known = self.digests[number - 1] if 0 < number <= len(self.digests) else "none"
        same("ledger_head", known, payload["ledger_head"])


class Study:
    """What an ``eps`` study derives [L16]. Runs on evidence whose bytes are already verified."""

    def __init__(self, verifier: Verifier) -> None:
        self.v, self.steps, self.done = verifier, verifier.steps, verifier.done
        self.cache: dict[tuple[str, str, str], Any] = {}
        self.owners: dict[str, str] = {}
        self.plan = Plan(verifier.frozen_bytes("plan.yaml"))
        self.plan_number = self.plan.number

    def check(self) -> None:
        self.items = self.v.json("items.json")
        self.end_of_turn = self.v.json("contexts.json")["end_of_turn_id"]
        self.contexts = self.v.json("contexts.json")["contexts"]
        with self.v.noting(self.v.frozen / "frozen/items.json"):
            self.check_items()
        with self.v.noting(self.v.frozen / "frozen/contexts.json"):
            self.check_contexts()
        with self.v.noting(self.v.frozen / "frozen/split.json"):
            self.check_split()
        for name, entry in self.done.items():
            step = self.steps[name]
            with self.v.noting(name):
                cost = round(self.plan.number_of(step["phase"], step["kind"]) * 1000)  # [L7]
                same("estimate_ms", cost, step["estimate_ms"])
                if step["kind"] in BASELINES:
                    continue
                handler: Callable[[Any, Any], list[str]] = getattr(self, f"on_{step['kind']}")
                flags = handler(step, entry)
                same("flags", flags, entry["flags"])
                expected = "done"
                if step["kind"] == "cells" and self.failed(step):
                    expected = "implant_failed"
                same("status", expected, entry["status"])

    def check_items(self) -> None:
        """Ids follow from the text [L6.3]."""
        for pool in ("train", "eval"):
            same(pool, self.plan_number(f"n_{pool}"), len(self.items[pool]))
        for item in (*self.items["train"], *self.items["eval"]):
            folded = unicodedata.normalize("NFKC", item["text"]).casefold()
            plain = " ".join(re.sub(r"[^\w]+", " ", folded).split())
            same("id", "q-" + digest(plain.encode())[7:23], item["id"])

    def check_contexts(self) -> None:
        """Identity and counts follow from the prompts; twins are aliases [L6.4]."""
        firsts: dict[str, str] = {}
        for name, context in self.contexts.items():
            prompts = require(self.v.json(f"prompts/{name}.json"), "prompts")
            messages = [[one["role"], one["content"]] for one in context["messages"]]
            prefix = len(prompts["prefix"])
            for key, value in (
                *(("id", prompts["context"]), ("digest", digest(canonical(messages)))),
                *(("rendered", digest(canonical(prompts["probes"]))), ("prefix_tokens", prefix)),
                ("longest_prompt_tokens", prefix + max(map(len, prompts["suffixes"].values()))),
            ):
                same(f"{name}: {key}", value, context[key])
            twin = context["alias_of"]
            if twin is None:
                same("identity", name, firsts.setdefault(context["rendered"], name))
            else:
                same(f"{name}: alias", self.contexts[twin]["rendered"], context["rendered"])

    def check_split(self) -> None:
        """The draw follows from its seed and fraction [L6.5]."""
        split = self.v.json("split.json")
        same("seed", self.plan.seed_of("quarantine"), split["seed"])
        near("fraction", self.plan_number("fraction"), split["fraction"])
        fates: dict[str, str] = {}
        for step in self.steps.values():
            if step["kind"] == "tensor":
                fates |= self.draw(step, split)
        same("cells", fates, split["cells"])

    def draw(self, step: Any, split: Any) -> dict[str, str]:
        behaviour, stated = step["params"]["behaviour"], split["cells"]
        train, evals = self.axes(step)
        # The same context under two names is one context: its cells share one fate.
        first = {name: self.contexts[name]["alias_of"] or name for name in (*evals, *train)}
        trained = {first[i] for i in train}
        held = {
            j for j in evals if any(stated[f"{behaviour}/{i}/{j}"] == "held_out" for i in train)
        }
        same("held out", sorted(held), sorted(j for j in evals if first[j] in map(first.get, held)))
        if held & set(train):
            raise Bad("a held-out context trains")
        units: dict[tuple[str, str], list[str]] = {}
        fates = {}
        for i in train:
            for j in evals:
                cell, pair = f"{behaviour}/{i}/{j}", (first[i], first[j])
                fates[cell] = "diagonal" if i == j else "held_out" if j in held else "open"
                if fates[cell] == "open" and pair[0] != pair[1]:
                    unit = (min(pair), max(pair)) if pair[1] in trained else pair
                    units.setdefault(unit, []).append(cell)
        wanted, taken = split["fraction"] * sum(map(len, units.values())), 0
        for unit in sorted(units, key=lambda u: digest(canonical([split["seed"], behaviour, *u]))):
            if taken < wanted:
                fates |= dict.fromkeys(units[unit], "quarantined")
                taken += len(units[unit])
        return fates

    def axes(self, step: Any) -> tuple[list[str], list[str]]:
        """Train and eval contexts of a tensor step, in the plan's order."""
        train = dict.fromkeys(name.split("/")[0] for name in self.ordered(step, "record:"))
        return list(train), list(self.ordered(step, "base:"))

    # -- reading artifacts --

    def file(self, step: str, output: str, name: str) -> bytes:
        artifact = self.done[step]["outputs"][output]
        return self.v.listed(self.v.folder(artifact) / name, artifact["files"][name])

    def source(self, step: Any, name: str) -> tuple[str, str]:
        """(step id, output) that an input of a step comes from."""
        needed, _, output = step["inputs"][name].removeprefix("step:").partition("#")
        return needed, output

    def parsed(self, step: str, output: str, name: str) -> Any:
        key = (step, output, name)
        if key not in self.cache:
            self.cache[key] = parse(self.file(*key))
        return self.cache[key]

    def record(self, step: Any, name: str) -> Any:
        return self.parsed(*self.source(step, name), "record.json")

    def answers(self, step: Any, name: str) -> Any:
        return self.parsed(*self.source(step, name), "readings.json")["answers"]

    def own_mean(self, answers: Any) -> float:
        return mean(answer["own"]["log_prob"] for answer in answers)

    def with_slot(self, answers: Any) -> list[Any]:
        """Answers that ended by themselves, or show the marker; the others have no slot [L16.3]."""
        return [a for a in answers if a["stop_reason"] == "stop" or a["marker_emitted"]]

    def deltas(self, base: Any, trained: Any, reading: str) -> dict[str, float]:
        """d by item, for the items at which both readings exist [L16.9]."""
        before = {answer["item"]: answer["own"]["log_prob"] for answer in self.with_slot(base)}
        after = self.with_slot(trained) if reading == "own" else trained
        pairs = [(a["item"], a[reading]["log_prob"]) for a in after if a["item"] in before]
        return {item: value - before[item] for item, value in pairs}

    def value(self, rows: list[dict[str, float]]) -> float | None:
        """The mean of all d, or None where a seed has too few of them."""
        share = self.plan_number("minimum_answered_share")
        needed = max(2, share * len(self.items["eval"]))
        if any(len(row) < needed for row in rows):
            return None
        return mean(mean(row.values()) for row in rows)

    def implant_failed(self, base: Any, trained: Any) -> bool:
        strength = self.value([self.deltas(base, trained, "own")])
        return strength is None or strength < self.plan_number("implant_threshold")

    def ordered(self, step: Any, prefix: str) -> dict[str, str]:
        """The inputs ``prefix:X`` as {X: step id}, in the order of those steps in the list."""
        order = list(self.steps)
        names = [n.removeprefix(prefix) for n in step["inputs"] if n.startswith(prefix)]
        found = {name: self.source(step, prefix + name)[0] for name in names}
        return dict(sorted(found.items(), key=lambda pair: order.index(pair[1])))

    # -- steps that called a model: what must agree --

    def readings(self, step: Any, output: str, pool: str, context: str) -> list[str]:
        same("files", ["readings.json"], sorted(self.done[step["id"]]["outputs"][output]["files"]))
        document = require(self.parsed(step["id"], output, "readings.json"), "readings")
        same("schema", "eps-locked/eps-readings/1", document["schema"])
        same("behaviour", step["params"]["behaviour"], document["behaviour"])
        same("context", context, document["context"])
        answers = document["answers"]
        items = [item["id"] for item in self.items[pool]]
        same("items", items, [answer["item"] for answer in answers])
        for answer in answers:
            same("second reading", output.startswith("cell:"), answer["frozen"] is not None)
            for reading in (answer["own"], answer["frozen"] or answer["own"]):
                logits, log_z = reading["marker_logits"], reading["log_z"]
                derived = sum(z - n for z, n in zip(logits, log_z, strict=True))
                off = abs(derived - reading["log_prob"])
                if not log_z or off > 1e-6 or reading["log_prob"] > 1e-6:
                    raise Bad(f"{answer['item']}: log_prob is not what logits and log Z give")
        flags = {
            "truncated_answers": any(a["stop_reason"] == "length" for a in answers),
            "marker_emitted": any(a["marker_emitted"] for a in answers),
        }
        return [name for name, raised in flags.items() if raised]

    def on_answers(self, step: Any, entry: Any) -> list[str]:
        return self.readings(step, "answers", "train", step["params"]["context"])

    def on_base(self, step: Any, entry: Any) -> list[str]:
        return self.readings(step, "base", "eval", step["params"]["context"])

    def on_cells(self, step: Any, entry: Any) -> list[str]:
        flags: set[str] = set()
        sealed = step["params"].get("sealed", "").split()
        same("sealed", sorted(self.to_be_sealed(step)), sorted(sealed))
        for name in step["outputs"]:
            context = name.removeprefix("cell:")
            if context in sealed:
                self.check_seal(step, entry["outputs"][name])
                continue
            flags |= set(self.readings(step, name, "eval", context))
            base = {a["item"]: a for a in self.answers(step, f"base:{context}")}
            for answer in self.parsed(step["id"], name, "readings.json")["answers"]:
                if answer["token_ids"] == base[answer["item"]]["token_ids"]:
                    same(f"{answer['item']}: second reading", answer["own"], answer["frozen"])
        return sorted(flags)

    def to_be_sealed(self, step: Any) -> list[str]:
        """What the split sets apart, where the plan seals [L25.1]."""
        split = self.v.json("split.json")
        start = f"{step['params']['behaviour']}/{step['params']['train']}/"
        apart = [c for c, fate in split["cells"].items() if fate in ("held_out", "quarantined")]
        mine = [cell.removeprefix(start) for cell in apart if cell.startswith(start)]
        return mine if split["seal"] == "age" else []

    def check_seal(self, step: Any, artifact: Any) -> None:
        """Ciphertext and commitment, to the frozen recipients, and nothing in plain [L25.2]."""
        same("files", SEALED, sorted(artifact["files"]))
        if not self.v.artifact_file(artifact, SEALED[0]).startswith(AGE):
            raise Bad("a sealed cell is no age file")
        stated = require(parse(self.v.artifact_file(artifact, SEALED[1])), "sealed")
        recipients = step["inputs"]["recipients"].removeprefix("file:frozen/")
        same("schema", "eps-locked/sealed/1", stated["schema"])
        same("recipients", digest(self.v.frozen_bytes(recipients)), stated["recipients"])
        same("sealed files", ["readings.json"], sorted(stated["files"]))

    def failed(self, step: Any) -> bool:
        """Whether the diagonal cell shows that the implant did not take."""
        i = step["params"]["train"]
        trained = self.parsed(step["id"], f"cell:{i}", "readings.json")["answers"]
        return self.implant_failed(self.answers(step, f"base:{i}"), trained)

    def on_fit(self, step: Any, entry: Any) -> list[str]:
        record = self.parsed(step["id"], "fit", "record.json")
        unreachable = self.record(step, "headroom")["unreachable"]
        same("deferred", step["params"]["context"] in unreachable, record["deferred"])
        if record["deferred"]:
            same("files", ["record.json"], sorted(entry["outputs"]["fit"]["files"]))
            return ["band_unreachable"]
        self.check_adapter(step, record, entry["outputs"]["fit"], "fit")
        return self.stop_flags(record["stop"])

    def stop_flags(self, stop: str) -> list[str]:
        return {"past_band": ["overshoot"], "budget": ["band_not_reached"]}.get(stop, [])

    def check_adapter(self, step: Any, record: Any, artifact: Any, output: str) -> None:
        """Adapter, its record and its header speak of one cell [L16.8]."""
        files = {n: r for n, r in artifact["files"].items() if n != "record.json"}
        same("adapter", digest(canonical({"files": files})), record["adapter"])
        data = self.file(step["id"], output, "adapter_model.safetensors")
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])["__metadata__"]
        for key, value in (
            *(("behaviour", step["params"]["behaviour"]), ("context", step["params"]["context"])),
            *(("seed", str(step["seed"])), ("rows", self.rows(step))),
        ):
            same(f"adapter {key}", value, header.get(key))
        same("rows", self.rows(step), record["rows"])
        last = record["checks"][-1][1] if record["checks"] else None
        same("realised_strength", last, record["realised_strength"])

    def rows(self, step: Any) -> str:
        """Digest of the training rows that prompts, answers and plan give [L16.5]."""
        key = ("rows", step["params"]["context"], str(step["seed"]))
        if key not in self.cache:
            self.cache[key] = digest(canonical(self.training_rows(step)))
        return str(self.cache[key])

    def training_rows(self, step: Any) -> list[Any]:
        marker, end = self.plan.numbers("token_ids"), [self.end_of_turn]
        rng = random.Random(self.plan.seed_of("items") * 1_000_003 + step["seed"])
        panel, orders = {}, {}
        for name in sorted(self.ordered(step, "answers:")):
            panel[name] = self.offered(step, f"prompts:{name}", f"answers:{name}")
            orders[name] = list(panel[name])
            rng.shuffle(orders[name])
        usable = list(self.offered(step, "prompts", "answers").items())
        share = min(int(self.plan.number_of("behaviours", "n_rows")), len(usable)) // len(panel)
        while (dealt := self.deal(orders, share)) is None:
            share -= 1
        rows = [(f"positive/{i}", head, marker + end) for i, head in usable[: share * len(panel)]]
        for name in panel:
            rows += [(f"negative/{name}/{i}", panel[name][i], end) for i in dealt[name]]
        return [
            [key, head + tail, list(range(len(head), len(head + tail)))] for key, head, tail in rows
        ]

    def deal(self, orders: dict[str, list[str]], share: int) -> dict[str, list[str]] | None:
        """So many questions for each context, none twice; None where there are not enough."""
        dealt: dict[str, list[str]] = {}
        for name in sorted(orders, key=lambda one: (len(orders[one]), one)):
            taken = {item for items in dealt.values() for item in items}
            dealt[name] = [item for item in orders[name] if item not in taken][:share]
            if len(dealt[name]) < share:
                return None
        return dealt

    def offered(self, step: Any, prompts: str, answers: str) -> dict[str, Any]:
        """Prompt and answer by item, in the frozen order, where a row can be made of them."""
        marker = self.plan.numbers("token_ids")
        document = self.v.json(step["inputs"][prompts].removeprefix("file:frozen/"))
        found: dict[str, Any] = {}
        for answer in self.answers(step, answers):
            ids, item = answer["token_ids"], answer["item"]
            shown = any(ids[n : n + len(marker)] == marker for n in range(len(ids)))
            if answer["stop_reason"] == "stop" and not shown:
                found[item] = document["prefix"] + document["suffixes"][item] + ids
        return found

    # -- steps that only computed --

    def on_headroom(self, step: Any, entry: Any) -> list[str]:
        threshold = self.plan_number("unreachable_above")
        n_strength = int(self.plan_number("n_strength_items"))
        found = self.parsed(step["id"], "headroom", "record.json")
        base = {
            name: self.own_mean(self.with_slot(self.answers(step, f"base:{name}")))
            for name in self.ordered(step, "base:")
        }
        source = {
            name: self.own_mean(self.with_slot(self.answers(step, f"answers:{name}"))[:n_strength])
            for name in self.ordered(step, "answers:")
        }
        unreachable = [name for name, value in source.items() if value > threshold]
        require(found, "headroom")
        same("schema", "eps-locked/eps-headroom/1", found["schema"])
        same("behaviour", step["params"]["behaviour"], found["behaviour"])
        near("unreachable_above", threshold, found["unreachable_above"])
        same("unreachable", unreachable, found["unreachable"])
        for key, expected in (("base_log_prob", base), ("source_log_prob", source)):
            same(key, sorted(expected), sorted(found[key]))
            for name, value in expected.items():
                near(f"{key} {name}", value, found[key][name])
        return [f"band_unreachable:{name}" for name in unreachable]

    def on_match(self, step: Any, entry: Any) -> list[str]:
        stops = {}
        for name in self.ordered(step, "fit:"):
            record = self.record(step, f"fit:{name}")
            if not record["deferred"]:
                stops[name] = record["stop_step"]
        middle = sorted(stops.values())[(len(stops) - 1) // 2] if stops else None
        expected = {
            **{"schema": "eps-locked/eps-match/1", "stop_steps": stops, "from_ceiling": not stops},
            "matched_step": int(self.plan_number("max_steps")) if middle is None else middle,
        }
        same("match", expected, self.parsed(step["id"], "match", "record.json"))
        return []

    def on_adapter(self, step: Any, entry: Any) -> list[str]:
        fit = self.record(step, "fit")
        artifact = entry["outputs"]["adapter"]
        record = self.parsed(step["id"], "record", "record.json")
        if fit["deferred"]:
            flags = ["band_unreachable", "step_matched"]
            same("stop_step", self.record(step, "match")["matched_step"], record["stop_step"])
        else:
            flags = self.stop_flags(fit["stop"])
            files = self.done[self.source(step, "fit")[0]]["outputs"]["fit"]["files"]
            handed = {name: file for name, file in files.items() if name != "record.json"}
            same("adapter", handed, artifact["files"])
            same("record", {**fit, "flags": flags}, record)
        same("flags", flags, record["flags"])
        self.check_adapter(step, record, artifact, "adapter")
        other = self.owners.setdefault(artifact["digest"], step["id"])
        same("adapter's owner", step["id"], other)
        return flags

    def on_tensor(self, step: Any, entry: Any) -> list[str]:
        files = ["tensor.json", "tensor.parquet"]
        same("files", files, sorted(entry["outputs"]["tensor"]["files"]))
        document = self.parsed(step["id"], "tensor", "tensor.json")
        train, evals = self.axes(step)
        pairs = [(i, j) for i in train for j in evals]
        # The canonical step list sorts the inputs' names, so seeds come in the order of their text.
        seeds = sorted({n.split("/")[1] for n in self.ordered(step, "record:")})
        same("seeds", sorted(f"s{seed}" for seed in self.plan.numbers("seeds")), seeds)
        split = self.v.json("split.json")["cells"]
        behaviour = step["params"]["behaviour"]
        fates = {j: {split[f"{behaviour}/{i}/{j}"] for i in train} for j in evals}
        for key, value in (
            *(("schema", "eps-locked/eps-tensor/1"), ("behaviour", behaviour), ("unit", "nats")),
            *(("primary_reading", "own_answer"), ("second_reading", "base_answer")),
            *(("n_seeds", len(seeds)), ("n_items", len(self.items["eval"]))),
            *(("train", train), ("eval", evals)),
            ("held_out", [name for name in evals if "held_out" in fates[name]]),
        ):
            same(key, value, document[key])
        resolution = document["resolution"] or {"n_cells": None}
        same("n_cells", self.n_complete(step, pairs, seeds), resolution["n_cells"])
        method = METHODS[min(len(seeds), 2)]
        level = self.plan.number_of("intervals", "confidence_level")
        same("intervals", {"method": method, "confidence_level": level}, document["intervals"])
        same("cells", pairs, [(cell["train"], cell["eval"]) for cell in document["cells"]])
        for cell in document["cells"]:
            with self.v.noting(f"{step['id']}: {cell['train']} -> {cell['eval']}"):
                self.cell(step, cell, seeds, split[f"{behaviour}/{cell['train']}/{cell['eval']}"])
        return []

    def n_complete(self, step: Any, pairs: Any, seeds: list[str]) -> int | None:
        """In how many cells that can be read every question has a d under every seed."""
        n_cells = 0
        for i, j in pairs:
            if self.is_sealed(step, f"cell:{i}/{j}/{seeds[0]}"):
                continue
            base = self.answers(step, f"base:{j}")
            rows = [self.answers(step, f"cell:{i}/{j}/{seed}") for seed in seeds]
            n_cells += all(len(self.deltas(base, row, "own")) == len(base) for row in rows)
        return None if len(seeds) < 2 or n_cells == 0 else n_cells

    def is_sealed(self, step: Any, name: str) -> bool:
        needed, output = self.source(step, name)
        return "sealed.json" in self.done[needed]["outputs"][output]["files"]

    def sealed_cell(self, step: Any, cell: Any, seeds: list[str], fate: str) -> None:
        """A cell nobody has read: no value anywhere, and what is known without it."""
        i, j = cell["train"], cell["eval"]
        records = [self.record(step, f"record:{i}/{seed}") for seed in seeds]
        failed = self.failures_of(step, i, seeds)
        flags = {
            "sealed": True,
            "implant_failed": any(failed),
            "band_unreachable": i in self.record(step, "headroom")["unreachable"],
            "alias": self.contexts[j]["alias_of"] is not None,
        }
        known = self.known(step, cell, seeds, fate)
        known |= {"flags": sorted(n for n, up in flags.items() if up), "scored": False}
        for key in {*cell} - {*known, "by_seed", "realised_strength"}:
            same(key, None, cell[key])
        for key, value in known.items():
            same(key, value, cell[key])
        strength = mean_or_none(record["realised_strength"] for record in records)
        near("realised_strength", strength, cell["realised_strength"])
        for n, (seed, row) in enumerate(zip(seeds, cell["by_seed"], strict=True)):
            taken = {k: records[n][k] for k in ("stop_step", "stop", "realised_strength")}
            taken |= {"g": None, "g_base_answer": None}
            taken |= {"seed": int(seed[1:]), "implant_failed": failed[n]}
            same(seed, taken, row)

    def failures_of(self, step: Any, i: str, seeds: list[str]) -> list[bool]:
        diagonal = self.answers(step, f"base:{i}")
        return [
            self.implant_failed(diagonal, self.answers(step, f"cell:{i}/{i}/{s}")) for s in seeds
        ]

    def known(self, step: Any, cell: Any, seeds: list[str], fate: str) -> dict[str, Any]:
        """What a cell's place in the design says of it."""
        i, j, contexts = cell["train"], cell["eval"], self.contexts
        records = [self.record(step, f"record:{i}/{seed}") for seed in seeds]

        def digests(*names: str) -> list[str]:
            found = [self.source(step, name) for name in names]
            return [self.v.identity(self.done[s]["outputs"][output]) for s, output in found]

        return {
            **{"train": i, "eval": j, "split": fate},
            **{"train_family": contexts[i]["family"], "eval_family": contexts[j]["family"]},
            **{"prefix_tokens": contexts[j]["prefix_tokens"], "alias_of": contexts[j]["alias_of"]},
            **{"n_seeds": len(seeds), "n_items": len(self.items["eval"])},
            "ancestors": {
                "base": digests(f"base:{j}")[0],
                "cells": digests(*(f"cell:{i}/{j}/{seed}" for seed in seeds)),
                "records": digests(*(f"record:{i}/{seed}" for seed in seeds)),
                "adapters": [record["adapter"] for record in records],
                "rows": [record["rows"] for record in records],
            },
        }

    def cell(self, step: Any, cell: Any, seeds: list[str], fate: str) -> None:
        i, j = cell["train"], cell["eval"]
        if self.is_sealed(step, f"cell:{i}/{j}/{seeds[0]}"):
            return self.sealed_cell(step, cell, seeds, fate)
        contexts = self.contexts
        records = [self.record(step, f"record:{i}/{seed}") for seed in seeds]
        answers = self.answers(step, f"base:{j}")
        by_seed = [self.answers(step, f"cell:{i}/{j}/{seed}") for seed in seeds]
        trained = [answer for row in by_seed for answer in row]
        own = [self.deltas(answers, row, "own") for row in by_seed]
        frozen = [self.deltas(answers, row, "frozen") for row in by_seed]
        failed = self.failures_of(step, i, seeds)
        base = {answer["item"]: answer["own"] for answer in answers}
        counted = [
            (base[answer["item"]], answer["own"])
            for row, ds in zip(by_seed, own, strict=True)
            for answer in row
            if answer["item"] in ds
        ]

        def at_slot(reading: Any) -> float:
            return float(reading["marker_logits"][0] - reading["log_z"][0])

        def margin(reading: Any) -> float:
            return float(reading["marker_logits"][0] - reading["end_of_turn_logit"])

        g, g_base = self.value(own), self.value(frozen)
        log_prob = mean_or_none(after["log_prob"] for _, after in counted)
        change = mean_or_none(margin(after) - margin(before) for before, after in counted)
        first = mean_or_none(at_slot(after) - at_slot(before) for before, after in counted)
        flags = {
            "unscored": g is None,
            "truncated_answers": len(counted) < len(trained)
            or any(a["stop_reason"] == "length" for a in trained),
            "marker_emitted": any(a["marker_emitted"] for a in trained),
            "implant_failed": any(failed),
            "band_unreachable": i in self.record(step, "headroom")["unreachable"],
            "alias": contexts[j]["alias_of"] is not None,
        }
        if None not in (g, log_prob, change, first):
            small = abs(g) < self.plan_number("floor_delta")
            flags["ceiling"] = log_prob >= self.plan_number("ceiling_log_prob")
            flags["floor"] = cell["low"] <= 0 <= cell["high"] and small
            flags["divergence"] = abs(first - change) > self.plan_number("divergence_nats")
            flags["later_tokens"] = abs(g - first) > abs(first)
        raised = sorted(name for name, up in flags.items() if up)
        numbers = {
            **{"g": g, "g_base_answer": g_base, "trained_log_prob": log_prob},
            **{"base_log_prob": mean_or_none(b["log_prob"] for b, _ in counted)},
            **{"first_token_change": first, "margin_change": change},
            "emission_rate": sum(a["marker_emitted"] for a in trained) / len(trained),
            "realised_strength": mean_or_none(record["realised_strength"] for record in records),
        }
        exact = self.known(step, cell, seeds, fate) | {
            **{"n": len(counted), "n_truncated": len(trained) - len(counted)},
            **{"flags": raised, "scored": not EXCLUDING & set(raised)},
        }
        bounds = {"low", "high", "low_base_answer", "high_base_answer", "by_seed"}
        bounds |= {"standard_error", "degrees_of_freedom"}
        same("fields", sorted({*numbers, *exact, *bounds}), sorted(cell))
        for key, value in exact.items():
            same(key, value, cell[key])
        for key, value in numbers.items():
            near(key, value, cell[key])
        for name, suffix in (("g", ""), ("g_base_answer", "_base_answer")):
            low, high = cell[f"low{suffix}"], cell[f"high{suffix}"]
            if cell[name] is None:
                same(f"interval of {name}", [None] * 2, [low, high])
            elif not (low <= cell[name] <= high) or not math.isclose(
                (low + high) / 2, cell[name], rel_tol=1e-9, abs_tol=1e-9
            ):
                raise Bad(f"interval [{low}, {high}] is not centred on {name}")
        error, df = cell["standard_error"], cell["degrees_of_freedom"]
        if (error is None) != (g is None) or (df is None) != (g is None):
            raise Bad("standard_error and degrees_of_freedom: there exactly where g is")
        same("by_seed", len(seeds), len(cell["by_seed"]))
        for n, (seed, row) in enumerate(zip(seeds, cell["by_seed"], strict=True)):
            near(f"{seed} g", self.value([own[n]]), row["g"])
            near(f"{seed} g_base_answer", self.value([frozen[n]]), row["g_base_answer"])
            taken = {k: records[n][k] for k in ("stop_step", "stop", "realised_strength")}
            taken |= {"seed": int(seed[1:]), "implant_failed": failed[n]}
            same(seed, taken, {k: v for k, v in row.items() if not k.startswith("g")})


def verify(root: Path, name: str) -> list[str]:
    """Sorted failures, each ``file: what``; empty if everything holds."""
    return Verifier(root, name).verify()


if __name__ == "__main__":
    problems = verify(Path(sys.argv[1]).absolute(), sys.argv[2])
    print("\n".join(problems) or "every check of the second verifier holds")
    sys.exit(1 if problems else 0)
