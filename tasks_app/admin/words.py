"""The words of models and columns in the reader's language.

Models name their columns in English, for everybody; only the operators' site translates them, here, when it is
registered. Nothing of it reaches migrations, which look at what a model was declared with.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

_PLURALS = {"audit entrys": "audit entries"}


def name_model(model: type[models.Model]) -> None:
    """Let the catalogue translate a model's names, its columns' and its choices'. Repeatable."""
    meta = model._meta
    meta.verbose_name = _lazy(meta.verbose_name)
    if "verbose_name_plural" not in meta.original_attrs:
        # Django's own is the singular with an s behind it, in every language.
        plural = f"{meta.verbose_name_raw}s"
        meta.verbose_name_plural = gettext_lazy(_PLURALS.get(plural, plural))
    else:
        meta.verbose_name_plural = _lazy(meta.verbose_name_plural)
    for field in meta.fields:
        field.verbose_name = _lazy(field.verbose_name)
        choices = getattr(field, "choices", None)
        if choices and field.remote_field is None:
            field.choices = [(value, _lazy(label)) for value, label in choices]


def own_words(model: type[models.Model]) -> set[str]:
    """Every English word of a model that `name_model` hands to the catalogue."""
    meta = model._meta
    words = {str(meta.verbose_name), str(meta.verbose_name_plural)}
    for field in meta.fields:
        words.add(str(field.verbose_name))
        if field.remote_field is None:
            words |= {str(label) for value, label in (field.choices or ())}
    return words


def _lazy(words: object) -> Any:
    return words if isinstance(words, Promise) else gettext_lazy(str(words))
