"""Reads the price table: YAML, every value taken as text, so that no number passes through a binary fraction."""

from __future__ import annotations

from collections.abc import Hashable
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from services.credits.policy import PriceError, PriceTable, parse


class _TextLoader(yaml.BaseLoader):
    """All scalars are strings; a key that is written twice is an error, not the last one wins."""


def _mapping(loader: _TextLoader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    content: dict[Hashable, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node)
        if not isinstance(key, Hashable) or key in content:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is there twice", key_node.start_mark
            )
        content[key] = loader.construct_object(value_node, deep=True)
    return content


_TextLoader.add_constructor("tag:yaml.org,2002:map", _mapping)


def load(path: Path | None) -> PriceTable:
    """The table in `path`, or the one that ships. Raises PriceError; the message starts with the file's name."""
    source = path or files(__package__) / "prices.yaml"
    try:
        # BaseLoader's descendants build plain strings, lists and dicts only, never objects
        content = yaml.load(source.read_text("utf-8"), Loader=_TextLoader)
        return parse(content)
    except OSError as error:
        raise PriceError(f"{source}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PriceError(f"{source}: is not valid YAML: {error}") from error
    except PriceError as error:
        raise PriceError(f"{source}: {error}") from None
