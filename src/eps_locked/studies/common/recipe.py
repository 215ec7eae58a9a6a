"""A LoRA recipe as a plan writes it."""

from __future__ import annotations

import re
from typing import Literal, cast

from eps_locked.domain.fields import Fields
from eps_locked.domain.model import LoraRecipe
from eps_locked.errors import MalformedInputError

__all__ = ["read_recipe"]

_MODULE = re.compile(r".+", re.DOTALL)


def read_recipe(fields: Fields) -> LoraRecipe:
    with fields:
        recipe = LoraRecipe(
            rank=fields.integer("rank", low=1),
            alpha=fields.number("alpha", above=0),
            dropout=fields.number("dropout", low=0, below=1),
            rank_stabilised=fields.flag("rank_stabilised"),
            target_modules=fields.texts("target_modules", shape=_MODULE),
            learning_rate=fields.number("learning_rate", above=0),
            schedule=cast(
                Literal["constant", "linear", "cosine"],
                fields.text("schedule", one_of=("constant", "linear", "cosine")),
            ),
            warmup_steps=fields.integer("warmup_steps", low=0),
            weight_decay=fields.number("weight_decay", low=0),
            max_grad_norm=fields.number("max_grad_norm", low=0),
            rows_per_step=fields.integer("rows_per_step", low=1),
        )
    modules = recipe.target_modules
    if not modules or len(set(modules)) != len(modules):
        raise MalformedInputError(
            fields.path("target_modules"), expected="distinct modules", found=list(modules)
        )
    return recipe
