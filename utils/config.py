"""From the composed YAML to a checked, typed, read-only configuration."""

import difflib
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any, get_args

from hydra.utils import to_absolute_path
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from configs import CONFIG_DIR
from configs.schema import Config
from utils.config_rules import RULES
from utils.errors import UserError


def validate_config(cfg: DictConfig | dict) -> DictConfig:
    """The configuration merged onto the schema, with defaults where `cfg` is silent.

    `cfg` may be what Hydra composed, or any part of it (a notebook may give MODEL, INPUT and OUTPUT
    only). A configuration that has been through here before is returned unchanged.

    Raises:
        UserError: lists every unknown key, wrong type, value out of range and broken rule at once.
    """
    if OmegaConf.is_config(cfg) and OmegaConf.get_type(cfg) is Config:
        return cfg
    try:
        composed = OmegaConf.unsafe_merge(_yaml_defaults(), cfg)
        plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(f"The configuration cannot be resolved: {error}") from None
    for key in ("hydra", "defaults"):
        plain.pop(key, None)

    typed = OmegaConf.structured(Config)
    problems = list(_assign(typed, Config, plain))
    for rule in RULES:
        try:
            problems.extend(rule(typed))
        except MissingMandatoryValue:
            continue  # a key that the rule needs has been reported already
    if problems:
        raise UserError.listing("The configuration has problems", problems)
    typed.WORK_DIR = to_absolute_path(typed.WORK_DIR)
    OmegaConf.set_readonly(typed, True)
    return typed


def _yaml_defaults() -> DictConfig:
    return OmegaConf.load(CONFIG_DIR / "config.yaml")


def _assign(section: DictConfig, schema: Any, values: Any, prefix: str = "") -> Iterator[str]:
    """Set `values` on `section` key by key, yielding a sentence for each that does not fit."""
    if not isinstance(values, dict):
        yield f"{prefix.rstrip('.')}: found {values!r}; expected a section with keys"
        return
    known = {entry.name: entry for entry in fields(schema)}
    for key, value in values.items():
        if key not in known:
            yield f"{prefix}{key}: unknown key{_did_you_mean(prefix + str(key), _all_keys())}"
        elif is_dataclass(known[key].type):
            yield from _assign(section[key], known[key].type, value, f"{prefix}{key}.")
        else:
            yield from _assign_value(section, known[key], value, prefix + key)


def _assign_value(section: DictConfig, entry: Field, value: Any, key: str) -> Iterator[str]:
    choices = entry.metadata.get("choices") or [
        str(choice) for choice in (entry.type if hasattr(entry.type, "__members__") else ())
    ]
    if choices and not any(type(value) is type(c) and value == c for c in choices):
        hint = _did_you_mean(str(value), [str(choice) for choice in choices])
        yield f"{key}: found {value!r}; choices: {', '.join(map(str, choices))}{hint}"
        return
    if value in ("None", "none") and not choices:  # what people write for YAML's null
        value = None
    if isinstance(value, dict):
        # Case ids that look like numbers are still names
        value = {str(name): item for name, item in value.items()}
    low, high = entry.metadata.get("range", (None, None))
    try:
        section[entry.name] = value
        stored = section[entry.name]
    except OmegaConfBaseException:
        yield f"{key}: found {value!r}; expected {_type_in_words(entry.type)}"
        return
    if low is not None and stored is not None:
        numbers = stored if OmegaConf.is_list(stored) else [stored]
        if not all(low <= number <= high for number in numbers):
            least, most = (f"{limit:.12g}" for limit in (low, high))
            limit = f"at least {least}" if most == "inf" else f"from {least} to {most}"
            section[entry.name] = "???"
            yield f"{key}: found {value!r}; expected {limit}"


def _type_in_words(kind: Any) -> str:
    items = [getattr(item, "__members__", None) for item in get_args(kind)]
    if items and items[0]:
        return f"a list of {', '.join(items[0])}"
    return kind.__name__ if type(kind) is type else str(kind)


def _all_keys(schema: Any = Config, prefix: str = "") -> list[str]:
    keys = []
    for entry in fields(schema):
        keys.append(prefix + entry.name)
        if is_dataclass(entry.type):
            keys.extend(_all_keys(entry.type, f"{prefix}{entry.name}."))
    return keys


def _did_you_mean(word: str, candidates: list[str]) -> str:
    for candidate in candidates:  # the right name in the wrong section
        if candidate.lower().endswith("." + word.lower().rsplit(".", 1)[-1]):
            return f"; did you mean {candidate}?"
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
