"""The page's section about the seal: what keeps the set-apart cells unread, and what does not."""

from __future__ import annotations

from eps_locked.report.html import Html, code, join, pairs, section, tag
from eps_locked.report.tensors import TensorEvidence


def custody(evidence: TensorEvidence) -> Html:
    """What keeps the set-apart cells unread, and what does not."""
    split = evidence.split
    fates = list(split["cells"].values())
    held, drawn = fates.count("held_out"), fates.count("quarantined")
    text = f"{held} held-out and {drawn} quarantined cells"
    if split["seal"] == "none":
        return section(
            "custody",
            "Seal and custody",
            tag(
                "p",
                tag("b", "Not sealed: "),
                f"{text}, by name only (seal: none). Nobody was kept from reading them, and this "
                "page shows them.",
                class_="notice",
            ),
        )
    keys = [line for line in (evidence.recipients or "").splitlines() if line.strip()]
    return section(
        "custody",
        "Seal and custody",
        tag(
            "p",
            f"{text} are sealed: their answers, readings and values were encrypted with "
            f"{split['seal']}, to the custodian's public keys below, in the process that made "
            "them. The runner holds no key. No number of theirs is on this page, in the tables "
            "beside it or in the tensor.",
        ),
        _demo_custody(evidence),
        pairs([("sealed to", join(*(tag("p", code(key)) for key in keys)))]),
        tag(
            "p",
            "What the seal does not show: whoever holds the custodian's key can open the cells "
            "without this ledger. The looks listed here are those that went through final-test.",
            class_="small",
        ),
    )


def _demo_custody(evidence: TensorEvidence) -> Html | None:
    """Said plainly where the key is no secret, or where nobody claims that it is."""
    rules = evidence.study["quarantine"]
    comments = [
        line for line in (evidence.recipients or "").splitlines() if not line.startswith("age1")
    ]
    if "demo" in " ".join([str(rules.get("recipients")), *comments]).casefold():
        return tag(
            "p",
            tag("b", "Demo custody: "),
            "the demonstration made the custodian's key itself, on the machine that ran the "
            "study. It is no secret; the seal shows how custody works and guards nothing here.",
            class_="notice",
        )
    if not evidence.manifest.publication:
        return tag(
            "p",
            tag("b", "Custody not vouched for: "),
            "the plan is not for publication, and nothing here says that the key lay with "
            "somebody else than the runner. Read the final scores as a demonstration.",
            class_="notice",
        )
    return None
