"""Checks of a panel's controls and models before anything is shown."""

from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from memlab.errors import BadValue
from memlab.lab.choices import Choice, make_choice
from memlab.lab.ranks import GLOBAL_RANK, NAMES, WORLD_SIZE, make_choice_of_ranks, of_train
from memlab.protocol import Train, check_settings, own_settings

OWN_MODEL = "the one that Run trains"


def other_model(name: str) -> str:
    """The name of a model to say beside a prediction: ``""`` for the one that Run trains."""
    return "" if name == OWN_MODEL else name


def check_choices(train: Train, wanted: Mapping[str, Any]) -> tuple[dict[str, Choice], dict[str, Any]]:
    """The choices for the settings of ``train``, and the values to begin with.

    Raises:
        BadTrain, BadValue: what cannot be chosen, and a default that is none of the choices.
    """
    named = own_settings(train)
    choices: dict[str, Choice] = {}
    settings: dict[str, Any] = {}
    for name, values in wanted.items():
        if name not in named and name not in NAMES:
            legal = ", ".join(named) or "none"
            raise BadValue(f"{name}={values!r} controls nothing: the settings of train are {legal}.")
        choices[name] = make_choice_of_ranks(name, values) if name in NAMES else make_choice(name, values)
        default = named[name].default if name in named else Parameter.empty
        settings[name] = choices[name].first if default is Parameter.empty else default
        choices[name].check(settings[name])
    if GLOBAL_RANK in choices and WORLD_SIZE not in choices:
        raise BadValue("global_rank chooses one of several ranks: give world_size, too.")
    return choices, settings


def check_models(
    train: Train, models: Mapping[str, Mapping[str, Any]], chosen: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The models that can be predicted in place of the one that Run trains, and that one last: their settings by name.

    Args:
        chosen: what the controls set.

    Raises:
        BadValue: a model sets what a control sets, or what ``train`` does not have.
    """
    if not isinstance(models, Mapping) or not all(isinstance(settings, Mapping) for settings in models.values()):
        raise BadValue(
            f'models={models!r} names no models: give settings of train by name, {{"wide": {{"width": 768}}}}.'
        )
    for name, settings in models.items():
        if both := settings.keys() & chosen.keys():
            setting = min(both)
            raise BadValue(f"model {name!r} sets {setting}={settings[setting]!r}, which a control sets: leave out one.")
        try:
            check_settings(train, of_train(chosen) | dict(settings))
        except BadValue as refusal:
            raise BadValue(f"model {name!r}: {refusal}") from None
    return {**{name: dict(settings) for name, settings in models.items()}, OWN_MODEL: {}}
