"""SSH signatures, by OpenSSH's own ``ssh-keygen -Y``, with the loose ends tied.

``ssh-keygen`` decides whether a signature is good, so an auditor can repeat the check with stock
tools. Before it is asked, the armour must be exactly what ``ssh-keygen`` writes: then the digest of
a ``.sig`` file names one signature, and a changed byte in it is always found. This module never
touches a private key's bytes; it hands OpenSSH the key's path.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from eps_locked.errors import BackendError, MalformedInputError, RefusedError

AUTHORIZATION_NAMESPACE = "eps-locked-authorization"
AMENDMENT_NAMESPACE = "eps-locked-amendment"

_BEGIN = b"-----BEGIN SSH SIGNATURE-----\n"
_END = b"-----END SSH SIGNATURE-----\n"
_COLUMNS = 70


def sign_file(path: Path, *, key: Path, namespace: str) -> bytes:
    """Sign a file that lies on disk; return the armoured signature's bytes (also ``path.sig``).

    ``key`` is a private key, or a public key whose private half an ssh-agent holds. Raises
    BackendError with OpenSSH's own words, which never contain key material.
    """
    result = _run(["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", namespace, str(path)], b"")
    if result.returncode != 0:
        raise BackendError(
            f"signature for {path.name}",
            problem=f"ssh-keygen failed ({_first_line(result.stderr)})",
            next_step=f"check that {key} is a private key you can use, or is in your ssh-agent",
        )
    return path.with_name(path.name + ".sig").read_bytes()


def verify_signature(
    data: bytes,
    signature: bytes,
    *,
    allowed_signers: bytes,
    principal: str,
    namespace: str,
    at: datetime,
    thing: str,
) -> None:
    """Require a good signature by ``principal`` over exactly ``data``.

    ``at`` is the time at which the allowed-signers file's validity windows are judged: now when a
    phase starts, the recorded time when an auditor looks back. Raises RefusedError.
    """
    _require_canonical_armour(signature, thing)
    if not is_plain_principal(principal):
        raise RefusedError(f"{thing}: signer", expected="a plain name", found=repr(principal))
    stamp = at.astimezone(UTC).strftime("%Y%m%d%H%M%SZ")
    try:
        with tempfile.TemporaryDirectory(prefix="eps-locked-") as folder:
            signers, armour = Path(folder, "allowed_signers"), Path(folder, "signature")
            signers.write_bytes(allowed_signers)
            armour.write_bytes(signature)
            result = _run(
                [
                    *("ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", principal),
                    *("-n", namespace, "-s", str(armour), f"-Overify-time={stamp}"),
                ],
                data,
            )
    except OSError as error:
        raise BackendError(
            tempfile.gettempdir(), problem=f"cannot hold temporary files ({error.strerror})"
        ) from error
    if result.returncode != 0:
        raise RefusedError(
            f"{thing}.sig",
            expected=f"a good {namespace} signature by {principal}",
            found=_first_line(result.stderr) or _first_line(result.stdout),
            next_step="have an allowed signer sign this very file again",
        )


def _require_canonical_armour(signature: bytes, thing: str) -> None:
    body = signature.removeprefix(_BEGIN).removesuffix(_END)
    try:
        blob = base64.b64decode(b"".join(body.split(b"\n")), validate=True)
    except (binascii.Error, ValueError):
        blob = b""
    text = base64.b64encode(blob)
    lines = [text[start : start + _COLUMNS] for start in range(0, len(text), _COLUMNS)]
    if signature != _BEGIN + b"".join(line + b"\n" for line in lines) + _END or not blob:
        raise RefusedError(
            f"{thing}.sig",
            expected="an SSH signature exactly as ssh-keygen writes it",
            found=f"{len(signature)} other bytes",
            next_step="restore the file, or have an allowed signer sign again",
        )


def public_principals(allowed_signers: bytes, *, thing: str) -> tuple[str, ...]:
    """Every principal named in an allowed-signers file.

    Raises MalformedInputError if there is none (nobody could authorize anything), for a pattern
    (it would let its key sign under any name), and for a key that two names share (its holder
    could sign as either, also as the colleague of themselves).
    """
    try:
        lines = allowed_signers.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise MalformedInputError(thing, problem="is not UTF-8") from error
    principals: list[str] = []
    owners: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        name, *rest = line.split()
        if not is_plain_principal(name):
            raise MalformedInputError(
                f"{thing}:{number}",
                expected="one plain name before the key",
                found=repr(name),
                next_step="write one line for each signer, without patterns or commas",
            )
        key = next((word for word in rest if word.startswith("AAAA")), line)
        owner = owners.setdefault(key, name)
        if owner != name:
            raise MalformedInputError(
                f"{thing}:{number}",
                problem=f"gives {name} the key of {owner}",
                next_step="give each signer a key of their own",
            )
        principals.append(name)
    if not principals:
        raise MalformedInputError(
            thing,
            expected="at least one allowed signer",
            found="none",
            next_step="add a line: NAME ssh-ed25519 AAAA... (see ssh-keygen(1), ALLOWED SIGNERS)",
        )
    return tuple(principals)


def is_plain_principal(name: str) -> bool:
    """Whether a name stands for itself: no pattern, no list, nothing a command line would drop."""
    return bool(name) and name.isprintable() and not set(name) & set(' ,*?!"')


def _run(arguments: Sequence[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(arguments, input=data, capture_output=True, check=False, timeout=60)
    except FileNotFoundError as error:
        raise BackendError(
            "ssh-keygen", problem="is not installed", next_step="install OpenSSH's client"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BackendError(
            "ssh-keygen",
            problem="did not answer within 60 s",
            next_step="a key with a passphrase needs ssh-agent: name its .pub file as the key",
        ) from error


def _first_line(output: bytes) -> str:
    text = output.decode("utf-8", "replace").strip()
    return text.splitlines()[0] if text else ""
