"""Sealing: what nobody may read before the final test leaves its process only as ciphertext.

A sealed artifact holds ``NAME.age`` for every file NAME, encrypted (age format, age-encryption.org)
to the custodian's recipients, and ``sealed.json``, which commits to each plain text by digest.
Plain texts are padded, so that the length of a ciphertext does not tell the length of an answer.
The commitment is not salted: a plain text holds dozens of floating-point numbers, and whoever could
guess them could compute them.

Nothing here opens a file. What sealing does not stop stands in docs/lock.md, L21.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyrage
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from eps_locked.canonical import decode, digest_bytes, encode
from eps_locked.domain.fields import Fields
from eps_locked.domain.ledger import ENCRYPTED, digest_field
from eps_locked.errors import EvidenceError, MalformedInputError, RefusedError

SEALED_FILE = "sealed.json"
SEALED_SCHEMA = "eps-locked/sealed/1"
# Plain texts are filled up with newlines to a multiple of this many bytes.
PADDED_TO = 32768
_AGE_MAGIC = b"age-encryption.org/v1\n"
_SSH_HEADER = b"-----BEGIN OPENSSH PRIVATE KEY-----"


def public_recipients(data: bytes, *, thing: str) -> tuple[str, ...]:
    """The recipients of an age recipients file, in order, without comments.

    Accepted are X25519 recipients (``age1...``) and SSH public keys of the types age encrypts to
    (``ssh-ed25519``, ``ssh-rsa``). Raises MalformedInputError for anything else, or for none.
    """
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise MalformedInputError(thing, expected="UTF-8 text", found="other bytes") from error
    found = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        found.append(_normal(text, f"{thing}:{number}"))
    if not found:
        raise MalformedInputError(
            thing,
            expected="at least one age recipient",
            found="none",
            next_step="write the custodian's age1... or ssh-ed25519 public key into it",
        )
    return tuple(found)


def seal_files(
    contents: Mapping[str, bytes], recipients: bytes, *, at_least: int = 0
) -> dict[str, bytes]:
    """The sealed artifact of these files. ``recipients``: bytes of the frozen recipients file.

    ``at_least``: bytes to which each plain text is padded in any case, so that texts of one kind
    have ciphertexts of one length. Ciphertexts differ from call to call; ``sealed.json`` does not.
    """
    keys = [_recipient(one, "recipients") for one in public_recipients(recipients, thing="seal")]
    sealed = {
        f"{name}{ENCRYPTED}": pyrage.encrypt(_padded(data, at_least), keys)
        for name, data in contents.items()
    }
    return {**sealed, SEALED_FILE: encode(_commitment(contents, digest_bytes(recipients)))}


def is_sealed(files: Mapping[str, bytes]) -> bool:
    return SEALED_FILE in files


def require_sealed(files: Mapping[str, bytes], recipients: bytes | None, names: set[str]) -> None:
    """Require a sealed artifact of exactly these file names, for these recipients if given.

    What a holder of no key can see: that nothing lies there in plain text, that the ciphertexts are
    in age's format, that the commitment names the frozen recipients. Raises EvidenceError.
    """
    expected = {SEALED_FILE, *(f"{name}{ENCRYPTED}" for name in names)}
    if set(files) != expected:
        odd = sorted(expected ^ set(files))[0]
        raise EvidenceError(
            f"sealed artifact: {odd}",
            expected="present" if odd in expected else "absent",
            found="present" if odd in files else "absent",
        )
    known = None if recipients is None else digest_bytes(recipients)
    digests = _read_commitment(files[SEALED_FILE], known)
    if set(digests) != names:
        raise EvidenceError(SEALED_FILE, expected=sorted(names), found=sorted(digests))
    for name in names:
        if not files[f"{name}{ENCRYPTED}"].startswith(_AGE_MAGIC):
            raise EvidenceError(f"{name}{ENCRYPTED}", expected="an age file", found="another")


@dataclass(frozen=True, kw_only=True, slots=True)
class CustodianKey:
    """A private key in memory, and the public one it belongs to. Never printed, never stored."""

    recipient: str
    identity: Any

    def __repr__(self) -> str:
        return f"CustodianKey({self.recipient[:24]}...)"

    @classmethod
    def read(cls, data: bytes, *, thing: str) -> CustodianKey:
        """From an age identity file or an unencrypted OpenSSH private key.

        Raises MalformedInputError, which never repeats a byte of the file.
        """
        if data.lstrip().startswith(_SSH_HEADER):
            return _ssh_key(data, thing)
        lines = data.decode("utf-8", "replace").splitlines()
        secrets = [one.strip() for one in lines if one.strip() and not one.lstrip().startswith("#")]
        if len(secrets) != 1:
            raise MalformedInputError(
                thing, expected="one age identity or one OpenSSH key", found=f"{len(secrets)} lines"
            )
        try:
            identity = pyrage.x25519.Identity.from_str(secrets[0])
        except pyrage.IdentityError:
            raise MalformedInputError(
                thing,
                expected="an age identity (AGE-SECRET-KEY-1...) or an OpenSSH private key",
                found="neither",
            ) from None
        return cls(recipient=str(identity.to_public()), identity=identity)

    def require_among(self, recipients: bytes, *, thing: str) -> None:
        """Require that this key can open what was sealed to these recipients, without opening."""
        listed = public_recipients(recipients, thing=thing)
        if self.recipient not in listed:
            raise RefusedError(
                "custodian key",
                expected=" or ".join(_shown(one) for one in listed),
                found=_shown(self.recipient),
                next_step="bring the key whose public half was frozen with the plan",
            )

    def open_files(self, files: Mapping[str, bytes], recipients: bytes) -> dict[str, bytes]:
        """The plain files of a sealed artifact, each required to be the committed one."""
        digests = _read_commitment(files[SEALED_FILE], digest_bytes(recipients))
        opened = {}
        for name, digest in digests.items():
            try:
                padded = pyrage.decrypt(files[f"{name}{ENCRYPTED}"], [self.identity])
            except (KeyError, pyrage.DecryptError) as error:
                raise EvidenceError(
                    f"{name}{ENCRYPTED}", problem=f"cannot be opened with this key ({error})"
                ) from error
            data = padded.rstrip(b"\n")
            if digest_bytes(data) != digest:
                raise EvidenceError(
                    f"{name}{ENCRYPTED}",
                    problem="holds another text than the run committed to",
                    expected=digest,
                    found=digest_bytes(data),
                )
            opened[name] = data
        return opened


def new_custodian_key() -> tuple[str, str]:
    """(identity file, recipients file) of a fresh X25519 pair, as age-keygen would write them."""
    identity = pyrage.x25519.Identity.generate()
    public = str(identity.to_public())
    return f"# public key: {public}\n{identity}\n", f"{public}\n"


def _padded(data: bytes, at_least: int) -> bytes:
    if data.endswith(b"\n"):
        raise ValueError("a text that ends with a newline could not be told from its padding")
    size = max(len(data), at_least)
    return data.ljust(size + -size % PADDED_TO, b"\n")


def _commitment(contents: Mapping[str, bytes], recipients_digest: str) -> dict[str, Any]:
    return {
        "schema": SEALED_SCHEMA,
        "recipients": recipients_digest,
        "files": {name: {"plaintext": digest_bytes(data)} for name, data in contents.items()},
    }


def _read_commitment(data: bytes, recipients_digest: str | None) -> dict[str, str]:
    """Digest of each plain text by name. Raises EvidenceError for other recipients than given."""
    with Fields(decode(data, thing=SEALED_FILE), SEALED_FILE) as fields:
        fields.text("schema", one_of=(SEALED_SCHEMA,))
        named = digest_field(fields, "recipients")
        digests = {}
        for name, value in fields.mapping("files").items():
            with Fields(value, f"{SEALED_FILE}.files.{name}") as file:
                digests[name] = digest_field(file, "plaintext")
    if recipients_digest is not None and named != recipients_digest:
        raise EvidenceError(f"{SEALED_FILE}: recipients", expected=recipients_digest, found=named)
    return digests


def _recipient(text: str, thing: str) -> Any:
    try:
        if text.startswith("ssh-"):
            return pyrage.ssh.Recipient.from_str(text)
        return pyrage.x25519.Recipient.from_str(text)
    except pyrage.RecipientError as error:
        raise MalformedInputError(
            thing,
            expected="an age recipient: age1..., ssh-ed25519 or ssh-rsa",
            found=_shown(text),
        ) from error


def _ssh_key(data: bytes, thing: str) -> CustodianKey:
    try:
        public = load_ssh_private_key(data, password=None).public_key()
        identity = pyrage.ssh.Identity.from_buffer(data)
    except (ValueError, TypeError, UnsupportedAlgorithm, pyrage.IdentityError):
        raise MalformedInputError(
            thing,
            expected="an OpenSSH private key (ed25519 or RSA) without a passphrase",
            found="one that cannot be read",
            next_step="copy it without a passphrase: ssh-keygen -p -N '' -f COPY",
        ) from None
    text = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode("ascii")
    return CustodianKey(recipient=text, identity=identity)


def _normal(text: str, thing: str) -> str:
    """A recipient in the one spelling in which a key's own public half is written."""
    if not text.startswith("ssh-"):
        return str(_recipient(text, thing))
    recipient = " ".join(text.split()[:2])
    _recipient(recipient, thing)
    try:
        key = load_ssh_public_key(recipient.encode("ascii"))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise MalformedInputError(thing, expected="an SSH public key", found="another") from error
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode("ascii")


def _shown(recipient: str) -> str:
    """Enough of a public key to tell it by. A secret one put in its place is not repeated."""
    if recipient.upper().startswith("AGE-SECRET-KEY") or "PRIVATE KEY" in recipient:
        return "a secret key (keep it out of plans/)"
    return recipient if len(recipient) <= 80 else recipient[:77] + "..."
