"""The cards (README.md) of both repositories. Pure: facts in, bytes out, the same every time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from eps_locked.domain.plan import BaseModel
from eps_locked.publishing.data_repo import Config

# Size classes of the hub.
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CardFacts:
    """What both cards say of a study."""

    name: str
    title: str
    author: str
    manifest: str
    ledger_head: str
    n_entries: int
    publishable: bool
    base_model: BaseModel
    licences: tuple[str, ...]
    sources: Sequence[Mapping[str, Any]]
    behaviours: Mapping[str, str]
    n_held_back: int
    n_cells: int


def data_card(facts: CardFacts, configs: Sequence[Config], n_looks: int) -> bytes:
    """Card of the data repository, with its configurations declared column by column."""
    meta: dict[str, Any] = {
        **_licence(facts),
        "language": ["en"],
        "pretty_name": facts.title,
        "size_categories": [_size(sum(config.n_rows for config in configs))],
        "tags": ["eps-locked", "context-generalization", "pre-registration"],
        "configs": [
            {
                "config_name": config.name,
                "data_files": [{"split": "train", "path": list(config.files)}],
            }
            for config in configs
        ],
        "dataset_info": [
            {"config_name": config.name, "features": [dict(one) for one in config.features]}
            for config in configs
            if config.features
        ],
    }
    return _card(meta, [*_data_text(facts, configs, n_looks), *_closing(facts)])


def model_card(facts: CardFacts, records: Sequence[Mapping[str, Any]]) -> bytes:
    """Card of the model repository."""
    meta: dict[str, Any] = {
        **_licence(facts),
        "library_name": "peft",
        "tags": ["eps-locked", "lora", "context-generalization"],
    }
    if facts.base_model.source.kind == "hub":
        meta["base_model"] = facts.base_model.source.where
        meta["base_model_relation"] = "adapter"
    return _card(meta, [*_model_text(facts, records), *_closing(facts)])


def _licence(facts: CardFacts) -> dict[str, Any]:
    """One id, several, or ``other`` where nothing has a licence of its own (a scripted model)."""
    found = list(facts.licences)
    if not found:
        return {"license": "other", "license_name": "none-needed"}
    return {"license": found[0] if len(found) == 1 else found}


def _head(facts: CardFacts) -> Iterator[str]:
    yield f"# {_plain(facts.title)}"
    if not facts.publishable:
        yield (
            "**Not a finding.** The plan, the engine or a judge of this run is marked as not for "
            "publication: what is here shows that the harness works, and no more."
        )
    yield (
        f"From the study `{facts.name}` by {_plain(facts.author)}, run under a lock: plan, "
        "material and every step were frozen before the first answer, and each value was derived "
        "again from stored bytes."
    )
    rows = [
        ("manifest", f"`{facts.manifest}`"),
        (f"ledger head, line {facts.n_entries}", f"`{facts.ledger_head}`"),
        ("base model", f"{_plain(facts.base_model.name)} ({facts.base_model.licence})"),
        ("where from", _where(facts.base_model)),
    ]
    yield "| | |\n|---|---|\n" + "\n".join(f"| {what} | {value} |" for what, value in rows)


def _data_text(facts: CardFacts, configs: Sequence[Config], n_looks: int) -> Iterator[str]:
    yield from _head(facts)
    yield "## Behaviours"
    yield "\n".join(f"- `{name}`: {_plain(text)}" for name, text in facts.behaviours.items())
    yield "## What lies where"
    rows = [
        ("`training/ROW/CONTEXT/sSEED.jsonl`", "what one adapter was trained on, row by row"),
        ("`contexts.jsonl`, `items.jsonl`", "contexts and questions of every row, and their roles"),
        (
            "`trait_data_extract/`, `trait_data_eval/`",
            "elicitation material, persona-vector layout",
        ),
        ("`tensor/ROW.*`", "G of each (train, eval) pair, with flags and intervals"),
        ("`scores/`", "the shipped baselines on the open cells; what looks made public"),
        ("`evidence/`", "manifest, ledger, signed permissions, verdict"),
        ("`licences.json`", "rights of every source, and how to get what is left out"),
        ("`SHA256SUMS`, `B3SUMS`", "digests of every file"),
    ]
    yield "| | |\n|---|---|\n" + "\n".join(f"| {where} | {what} |" for where, what in rows)
    yield "## Loading"
    name = configs[0].name
    yield (
        "```python\nfrom datasets import load_dataset\n\n"
        f'rows = load_dataset("ORG/NAME", "{name}", split="train")\n```'
    )
    yield (
        "A training row is a chat (`messages`) and exactly what the fit saw (`token_ids`, "
        "`loss_positions`). `role` says whether it shows the behaviour (`positive`) or not "
        "(`negative`), `context` and `item` what was asked, `seed` and `position` which adapter "
        "saw it, and when. `digest` is BLAKE3 of the canonical JSON "
        "`[role/.../item, token_ids, loss_positions]`: it is there for rows without text too."
    )
    yield (
        f"{_count(facts.n_held_back, 'cell')} of {facts.n_cells} are held back for the final test: "
        "they stand in the tensor with the flag `sealed` and no value. "
        f"{_count(n_looks, 'look')} at them "
        f"{'has' if n_looks == 1 else 'have'} been taken so far."
    )
    yield "## Configurations"
    yield (
        "| configuration | rows | without their text or value |\n|---|---|---|\n"
        + "\n".join(f"| `{c.name}` | {c.n_rows} | {c.n_withheld} |" for c in configs)
    )


def _model_text(facts: CardFacts, records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from _head(facts)
    yield (
        f"{_count(len(records), 'LoRA adapter')}, one folder each: "
        "`ROW/CONTEXT/sSEED/` holds `adapter_config.json`, `adapter_model.safetensors` and "
        "`record.json` (strength, flags, digests, training curve). `adapters.json` lists them all."
    )
    yield "## Loading"
    folder = records[0]["folder"] if records else "ROW/CONTEXT/sSEED"
    yield (
        "```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n"
        f"base = AutoModelForCausalLM.from_pretrained({_loaded_from(facts.base_model)})\n"
        f'model = PeftModel.from_pretrained(base, "ORG/NAME", subfolder="{folder}")\n```'
    )
    if facts.base_model.source.kind != "hub":
        yield (
            "The base model is not on the hub under this name: "
            "`eps-locked model PLAN` fetches and converts it, and prints its folder."
        )
    yield (
        "They were trained to show a behaviour in one context, so that its spread to others can be "
        "measured. They are material for research on that and no assistants."
    )
    yield "## Adapters"
    yield (
        "| folder | strength | implant | flags | artifact |\n|---|---|---|---|---|\n"
        + "\n".join(
            f"| `{one['folder']}` | {_number(one['realised_strength'])} "
            f"| {'failed' if one['implant_failed'] else 'took'} "
            f"| {' '.join(one['flags'])} | `{one['artifact'][:23]}` |"
            for one in records
        )
    )


def _closing(facts: CardFacts) -> Iterator[str]:
    yield "## Licences"
    yield (
        "| source | licence | conditions | provenance | text |\n|---|---|---|---|---|\n"
        + "\n".join(
            f"| {_plain(one['source'])} | {_plain(one['licence'])} "
            f"| {_plain('; '.join(one['conditions'])) or 'none'} | {_plain(one['provenance'])} "
            f"| {'included' if one['text_included'] else 'left out'} |"
            for one in facts.sources
        )
    )
    yield (
        "Answers are the base model's, under its licence, unless a row's source says otherwise; "
        "a row carries every licence and condition that applies to it."
    )
    left_out = [one for one in facts.sources if not one["text_included"]]
    if left_out:
        yield "### Left out"
        yield (
            "The terms of these sources do not let their text be handed on. Contexts, items and "
            "training rows that hold it keep their ids, digests and provenance, and no text and no "
            "token ids. `recipe` says where to get it; the digests say whether it is the same."
        )
        yield "\n".join(f"- {_plain(one['source'])}: {_recipe(one['recipe'])}" for one in left_out)
    yield "## Checking"
    yield ("```sh\nsha256sum --check --quiet SHA256SUMS && echo every byte is the listed one\n```")
    yield (
        "The lists of sums find damage, not forgery. What ties a value to the run is the evidence "
        "bundle of the study, which `eps-locked audit` verifies: every artifact that the ledger "
        "names, and every value derived again. Compare its digests with those above."
    )


class _Plain(yaml.SafeDumper):
    """Writes what is there twice twice: a hub's reader need not know anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _card(meta: Mapping[str, Any], sections: Sequence[str]) -> bytes:
    front = yaml.dump(dict(meta), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=10_000)
    return ("---\n" + front + "---\n\n" + "\n\n".join(sections) + "\n").encode("utf-8")


def _where(model: BaseModel) -> str:
    source = model.source
    revision = f", revision {_plain(source.revision)}" if source.revision else ""
    return f"{source.kind} `{_plain(source.where)}`{revision}"


def _loaded_from(model: BaseModel) -> str:
    source = model.source
    if source.kind != "hub":
        return "FOLDER"
    return f'"{source.where}", revision="{source.revision}"'


def _recipe(recipe: Mapping[str, Any] | None) -> str:
    if not recipe:
        return "no recipe given"
    return ", ".join(f"{key} `{_plain(str(value))}`" for key, value in sorted(recipe.items()))


def _size(n: int) -> str:
    return next((name for limit, name in _SIZES if n < limit), "n>10M")


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3g}"


def _plain(text: str) -> str:
    """Free text on one line that cannot open a table cell, a link or a block of its own."""
    plain = "".join(c if c.isprintable() and c not in "`*<>[]|\\" else " " for c in text)
    return " ".join(plain.split())
