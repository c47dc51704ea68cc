"""`afterturn settings`: the settings in force with secrets masked; and their reference, docs/settings.md."""

from __future__ import annotations

import json
import re
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from annotated_types import Ge, Gt, Le, Lt
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from services.settings import Settings
from services.settings_sources import variables
from streams.cli.start import SettingsFile, load_settings

MASK = "********"

_HEAD = """\
# Settings

Generated from the model in services/settings.py by `make docs`; do not edit.

Settings come from, the first that has one wins: options of a command, environment variables, the file that
`--settings FILE` names, the defaults below. The file has `NAME=value` lines with the same names as the environment,
`OPENAI_*` included; lines that begin with `#` are comments, and `${NAME}` in a value stands for that environment
variable. An empty value means: not set. Every process reads the settings that concern it.

A wrong value, an unknown `AFTERTURN_` variable or an unknown line of the file stops the start with exit code 2 and a
line that names it and never shows its value. `afterturn settings` prints what is in force, secrets masked.

| Name | Type | Default | Range | Meaning |
|---|---|---|---|---|
"""

_BOUNDS = ((Ge, "ge", "from"), (Gt, "gt", "over"), (Le, "le", "to"), (Lt, "lt", "under"))


def command(
    settings_file: SettingsFile = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the reference instead.")] = False,
) -> None:
    """Print the settings in force, secrets masked; or the reference of all settings."""
    if markdown:
        typer.echo(reference(), nl=False)
        return
    for line in in_force(load_settings(settings_file)):
        typer.echo(line)


def reference() -> str:
    """The whole of docs/settings.md."""
    rows = []
    for name, field in variables().items():
        info = Settings.model_fields[field]
        cells = (f"`{name}`", kind(info), default(info), bounds(info), info.description or "")
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return _HEAD + "".join(rows)


def in_force(settings: Settings) -> list[str]:
    """`NAME=value` lines without one secret; what is not set is a comment."""
    lines = []
    for name, field in variables().items():
        value = getattr(settings, field)
        if value is None or value == ():
            lines.append(f"# {name} is not set")
        else:
            lines.append(f"{name}={_masked(value)}")
    return lines


def _masked(value: Any) -> str:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, tuple):
        return json.dumps([_masked(each) for each in value])
    # addresses may carry a password: before the host, or in the query
    text = re.sub(r"(?<=://)([^/@:]*):.*@", rf"\1:{MASK}@", str(value))
    return re.sub(r"(?i)([?&][^=&]*(?:password|secret|token|key)[^=&]*=)[^&]*", rf"\1{MASK}", text)


def kind(info: FieldInfo) -> str:
    """The type in words."""
    return _words(info.annotation)


def _words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(_words(each) for each in arguments if each is not type(None))
    if origin is Literal:
        return "one of " + ", ".join(f"`{each}`" for each in arguments)
    if origin is tuple:
        return f"JSON list of {_words(arguments[0])}s"
    return {int: "whole number", float: "number", str: "text", SecretStr: "secret", Path: "file"}[annotation]


def default(info: FieldInfo) -> str:
    """The default, or that there is none."""
    if info.default is None or info.default == ():
        return "not set"
    return f"`{info.default}`"


def bounds(info: FieldInfo) -> str:
    """The range of a number."""
    parts = [
        f"{word} {getattr(limit, attribute):.15g}"
        for kind, attribute, word in _BOUNDS
        for limit in info.metadata
        if isinstance(limit, kind)
    ]
    return " ".join(parts)
