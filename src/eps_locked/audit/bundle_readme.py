"""The README of a bundle: what an auditor types, and what each command must print.

A pure function of facts that are read from the evidence itself, so whoever holds the folder and
the same program can write it again and compare. No time, place or person of bundling enters.

A ``sh`` block is one command to paste. A ``text`` block below it is exactly what it prints, but
for ``...``, which stands for any text within a line.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from eps_locked.canonical import DIGEST_PREFIX
from eps_locked.domain.clock import format_time

LOCK_PAGE = "docs/lock.md"
SECOND_VERIFIER = "verify/second_verifier.py"
# Last lines of the two programs named in the README.
SECOND_VERIFIER_HOLDS = "every check of the second verifier holds"
AUDIT_HOLDS = "every check of this folder holds"


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedFact:
    """A signed document: its folder in the bundle, its namespace, who signed, and when."""

    folder: str
    namespace: str
    signer: str
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedFact:
    """An encrypted file in the bundle, the digest its plain text was committed to, and the file
    with the keys it was encrypted to (None if the manifest holds none of that digest)."""

    path: str
    plaintext: str
    recipients: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What the README says of one study. ``results`` are (phase, results digest), as closed.

    ``n_listed``: lines of B3SUMS. ``version``: of the program the run is bound to. ``head``: digest
    of the ledger's last line; ``genesis``: what its first line must name as its predecessor.
    """

    name: str
    title: str
    author: str
    version: str
    manifest: str
    frozen_at: datetime
    genesis: str
    head: str
    n_entries: int
    results: tuple[tuple[str, str], ...]
    n_submissions: int
    n_looks: int
    signed: tuple[SignedFact, ...]
    sealed: tuple[SealedFact, ...]
    has_sources: bool
    has_report: bool
    has_lock_page: bool
    has_second_verifier: bool
    n_listed: int


def readme(facts: Facts) -> bytes:
    """``README.md`` of the bundle."""
    sections = (
        _head(facts),
        _every_byte(facts),
        _manifest_and_ledger(facts),
        _signatures(facts),
        _second_verifier(facts),
        _whole_audit(facts),
        _custodian(facts),
        _limits(facts),
        _contents(facts),
    )
    return ("\n\n".join("\n\n".join(section) for section in sections) + "\n").encode("utf-8")


def _head(facts: Facts) -> Iterator[str]:
    yield f"# Evidence of the study {facts.name}"
    yield (
        f"*{_inline(facts.title)}*, by {_inline(facts.author)}, frozen at "
        f"{format_time(facts.frozen_at)}. This folder holds what was promised before the run, what "
        "was recorded during it, and how to check both without a network and, for the most part, "
        "without any program of ours."
    )
    rows = [
        ("manifest digest", f"`{facts.manifest}`"),
        (f"ledger head, line {facts.n_entries} (seq {facts.n_entries - 1})", f"`{facts.head}`"),
        *((f"results of {phase}", f"`{digest}`") for phase, digest in facts.results),
        ("submissions frozen", str(facts.n_submissions)),
        ("looks at the sealed cells", str(facts.n_looks)),
        ("encrypted files", str(len(facts.sealed))),
        ("program the run is bound to", f"eps-locked {facts.version}"),
    ]
    yield "| | |\n|---|---|\n" + "\n".join(f"| {what} | {value} |" for what, value in rows)
    yield (
        "Get the digests you compare with from somewhere else: from the place where the authors "
        "published them when they could not yet know the outcome. A folder can only agree with "
        "itself."
    )
    yield (
        "All commands are typed in this folder, in a POSIX shell. They need `b3sum` (BLAKE3's own "
        "tool), GNU coreutils, and `ssh-keygen` of OpenSSH 8.9 or newer; two need `jq`, one "
        "Python with the package `blake3`, those of step 5 eps-locked, and the custodian needs "
        "`age`. None of them writes here: the folder may be read-only."
    )


def _every_byte(facts: Facts) -> Iterator[str]:
    yield "## 1. Every byte is the listed one"
    yield _sh("b3sum --check B3SUMS")
    yield f"prints {facts.n_listed} lines, each ending in `: OK`."
    yield _sh("sha256sum --check SHA256SUMS")
    yield f"prints {facts.n_listed + 1} lines, each ending in `: OK`; the one more is B3SUMS."
    yield "No file lies beside the listed ones, and no link:"
    yield _sh(
        "{ find . ! -type d | cut -c3-; cut -c67- SHA256SUMS; echo SHA256SUMS; } |\n"
        "    LC_ALL=C sort | LC_ALL=C uniq -u"
    )
    yield "prints nothing. The whole folder in one number, to compare with what you were told:"
    yield _sh("b3sum SHA256SUMS")
    yield _text("...  SHA256SUMS")


def _manifest_and_ledger(facts: Facts) -> Iterator[str]:
    manifest, ledger = f"manifests/{facts.name}/manifest.json", f"runs/{facts.name}/ledger.jsonl"
    yield "## 2. Manifest and ledger"
    yield (
        'A document is `{"digest":D,"payload":P}`, where D is the digest of the bytes of P: those '
        "after the first 94, without the last. The manifest's, computed and as it stands there:"
    )
    yield _sh(f"tail -c +95 {manifest} | head -c -1 | b3sum")
    yield _text(f"{_hex(facts.manifest)}  -")
    yield _sh(f"head -c 82 {manifest} | tail -c 64; echo")
    yield _text(_hex(facts.manifest))
    yield "Everything that was frozen is what the manifest lists (with `jq`):"
    yield _sh(
        "jq -r '.payload.files | to_entries[] | .value.digest[7:] + \"  \" + .key' \\\n"
        f"    {manifest} |\n"
        f"    (cd manifests/{facts.name} && b3sum --check --quiet) && echo frozen files hold"
    )
    yield _text("frozen files hold")
    yield "The ledger begins with this manifest and no other:"
    yield _sh(
        f'printf %s \'{{"manifest":"{facts.manifest}","root":"runs",'
        '"schema":"eps-locked/genesis/1"}\' | b3sum'
    )
    yield _text(f"{_hex(facts.genesis)}  -")
    yield "Each line has its digest and names that of the line before; the first names the above:"
    yield _sh(
        f"prev={_hex(facts.genesis)} n=0\n"
        "while IFS= read -r line; do\n"
        "    n=$((n + 1))\n"
        '    payload=${line#*\'"payload":\'} digest=${line#\'{"digest":"blake3:\'}\n'
        "    payload=${payload%?} digest=${digest%%'\"'*}\n"
        '    [ "$(printf %s "$payload" | b3sum)" = "$digest  -" ] || echo "line $n: other bytes"\n'
        "    case $payload in\n"
        '    *\'"prev":"blake3:\'"$prev"\'"\'*) ;;\n'
        '    *) echo "line $n: does not follow line $((n - 1))" ;;\n'
        "    esac\n"
        "    prev=$digest\n"
        f"done < {ledger}\n"
        'echo "$n lines, the last is $prev"'
    )
    yield _text(f"{facts.n_entries} lines, the last is {_hex(facts.head)}")
    yield "Every artifact that a line names lies here with the bytes it names (with `jq`):"
    yield _sh(
        "jq -r '.payload | ((.outputs // {})[], (.submission, .result | objects)) |\n"
        "    .digest[7:] as $hex | .files | to_entries[] |\n"
        f'    .value.digest[7:] + "  runs/{facts.name}/artifacts/" + $hex + "/" + .key\' \\\n'
        f"    {ledger} | LC_ALL=C sort -u | b3sum --check --quiet && echo artifacts hold"
    )
    yield _text("artifacts hold")
    yield (
        "A digest that was published while the run went on is the digest of one of these lines. "
        "`eps-locked audit . --expect-head DIGEST` looks for it, and so does"
    )
    yield _sh(f'grep -c \'^{{"digest":"{facts.head}"\' {ledger}')
    yield _text("1")
    yield "with the published digest in place of this one, which is the last line's."


def _signatures(facts: Facts) -> Iterator[str]:
    yield "## 3. Signatures"
    yield (
        "Who may sign stands in the frozen list of signers. Compare the keys in it with those you "
        "know these people by; a key that you only know from this folder proves nothing."
    )
    yield _sh(f"cat manifests/{facts.name}/frozen/allowed_signers")
    yield "One block for each authorization and amendment:"
    for one in facts.signed:
        document = shlex.quote(f"{one.folder}/document.json")
        signature = shlex.quote(f"{one.folder}/document.json.sig")
        stamp = one.at.astimezone(UTC).strftime("%Y%m%d%H%M%SZ")
        yield _sh(
            f"ssh-keygen -Y verify -f manifests/{facts.name}/frozen/allowed_signers \\\n"
            f"    -I {shlex.quote(one.signer)} -n {one.namespace} \\\n"
            f"    -s {signature} \\\n"
            f"    -Overify-time={stamp} \\\n"
            f"    < {document}"
        )
        yield _text(f'Good "{one.namespace}" signature for {one.signer} with ...')


def _second_verifier(facts: Facts) -> Iterator[str]:
    yield "## 4. A second verifier"
    if not facts.has_second_verifier:
        yield (
            "The installation that wrote this folder did not have the second verifier. It lies in "
            "the sources of eps-locked as `tests/conformance/second_verifier.py`; fetch it from "
            f"there and run it with `.` and `{facts.name}` as its arguments."
        )
        return
    yield (
        "One file, written from the specification alone; read it before you trust it. It "
        "recomputes what the ledger claims, and shares no line with the program that claimed it."
    )
    yield _sh(f"python3 {SECOND_VERIFIER} . {facts.name}")
    yield _text(SECOND_VERIFIER_HOLDS)


def _whole_audit(facts: Facts) -> Iterator[str]:
    yield "## 5. The whole audit"
    yield (
        f"With eps-locked {facts.version} (in a checkout also `./eps audit FOLDER`). Put the "
        "published digests after the two options; those below are this folder's own."
    )
    yield _sh(
        f"eps-locked audit . \\\n    --expect-manifest {facts.manifest} \\\n"
        f"    --expect-head {facts.head}"
    )
    yield f"prints its numbered checks, each `ok`, and ends in `{AUDIT_HOLDS}`."
    yield (
        "Another version fails C4: its rules are not those the run was bound to. `--other-code` "
        "lets it go on and says which source files differ."
    )
    if facts.has_report:
        yield (
            f"The page in `reports/{facts.name}` is derived and no signature covers it. The audit "
            "writes it again and compares. By hand, in a copy:"
        )
        yield _sh(
            "copy=$(mktemp -d)\n"
            'cp -R . "$copy" && chmod -R u+w "$copy" && rm -r "$copy/reports" &&\n'
            f'    eps-locked report {facts.name} --root "$copy" > /dev/null &&\n'
            f'    diff -r reports/{facts.name} "$copy/reports/{facts.name}" && echo same report\n'
            'rm -rf "$copy"'
        )
        yield _text("same report")


def _custodian(facts: Facts) -> Iterator[str]:
    yield "## 6. For the custodian"
    if not facts.sealed:
        yield (
            "This study seals nothing: no file here is encrypted, and whatever was set apart for "
            "later was set apart by name only."
        )
        return
    first = facts.sealed[0]
    keys = "keys that the manifest does not name"
    if first.recipients is not None:
        keys = f"the keys in `{_inline(first.recipients)}`"
    yield (
        f"{len(facts.sealed)} files are encrypted to {keys}, and stay so in this folder. Beside "
        "each lies `sealed.json` with the digest of its plain text, which the ledger names since "
        "the run made it. Whoever holds the private key can see that the text is that one. With "
        "the key's path in `KEY`, the first of them:"
    )
    yield _sh(f'age --decrypt -i "$KEY" {shlex.quote(first.path)}')
    yield (
        "prints its text, which is padded with newlines; the digest is that of the text without "
        "them, and `$(...)` drops them. All files against their digests, showing none of them:"
    )
    rows = "\n".join(f"{_hex(one.plaintext)} {one.path}" for one in facts.sealed)
    yield _sh(
        "n=0\n"
        "while read -r digest path; do\n"
        '    text=$(age --decrypt -i "$KEY" "$path") &&\n'
        '        [ "$(printf %s "$text" | b3sum)" = "$digest  -" ] &&\n'
        '        n=$((n + 1)) || echo "$path: not the text that was committed to"\n'
        "done <<'SEALED'\n"
        f"{rows}\n"
        "SEALED\n"
        f'echo "$n of {len(facts.sealed)} texts are the committed ones"'
    )
    yield _text(f"{len(facts.sealed)} of {len(facts.sealed)} texts are the committed ones")
    yield (
        "The digests above are copied from the files `sealed.json`. Looking at a sealed text "
        "outside `eps-locked final-test` is a look that nobody counted: do not tell authors of "
        "metrics what you saw."
    )


def _limits(facts: Facts) -> Iterator[str]:
    yield "## What this folder does not prove"
    limits = [
        "*That the numbers came from a model.* Who can write the files can invent readings and "
        "build a chain around them. A digest published early, replayed steps, or a repetition by "
        "somebody else speak against it.",
        "*That it is all of it.* A cut tail verifies, and so does the best of five runs. Only "
        "digests published before the run and after each phase tell.",
        "*Who signed.* A signature shows that a key was used; two keys may be one person's.",
        "*When.* Times and costs are the runner's word.",
        "*What the weights are.* Their bytes are named; where they came from is not known here.",
        "*That the two lists of sums are honest.* Nobody signs them. They find damage; who edits "
        "the folder can write them anew, and then steps 2 to 5 and the published digests must find "
        "it.",
    ]
    if facts.sealed:
        limits.append(
            "*That nobody saw the sealed cells.* They are encrypted at the place that made them; "
            "that the process was not watched, and that the custodian told nobody, is trust."
        )
    yield "\n".join(f"- {limit}" for limit in limits)
    if facts.has_lock_page:
        yield f"The longer list is section L21 of `{LOCK_PAGE}`."


def _contents(facts: Facts) -> Iterator[str]:
    yield "## What lies where"
    rows = [
        (f"manifests/{facts.name}/", "what was promised: the frozen plan and all it names"),
        (f"runs/{facts.name}/", "ledger, head, artifacts, signed documents, earlier verdicts"),
        ("plans/", "plan and material where the program looks for them; copies of the frozen"),
        (f"reports/{facts.name}/", "the page and its tables; derived"),
        ("schemas/", "JSON Schemas of the documents"),
        (LOCK_PAGE, "every format and every rule"),
        (SECOND_VERIFIER, "the verifier of step 4"),
        ("B3SUMS, SHA256SUMS", "digests of every file (but of the lists that cannot hold them)"),
    ]
    absent = {
        "plans/": not facts.has_sources,
        f"reports/{facts.name}/": not facts.has_report,
        LOCK_PAGE: not facts.has_lock_page,
        SECOND_VERIFIER: not facts.has_second_verifier,
    }
    yield "| | |\n|---|---|\n" + "\n".join(
        f"| `{where}` | {what} |" for where, what in rows if not absent.get(where)
    )
    yield (
        "Left out: try-outs (`smoke/`), and every private key. What lies in `aside/` of the run, "
        "if that is there, was left by crashes; only the lists of sums speak of it."
    )


def _sh(command: str) -> str:
    return f"```sh\n{command}\n```"


def _text(output: str) -> str:
    return f"```text\n{output}\n```"


def _hex(digest: str) -> str:
    return digest.removeprefix(DIGEST_PREFIX)


def _inline(text: str) -> str:
    """Free text on one line that cannot open a block of commands of its own."""
    plain = "".join(c if c.isprintable() and c not in "`*<>[]|\\" else " " for c in text)
    return " ".join(plain.split())
