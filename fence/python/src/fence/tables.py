"""Which tables are protected, and where their rows name their resources."""

from __future__ import annotations

from typing import Iterator, Mapping, Tuple, Union

#: The column that names a row's resource, or that column and a prefix: `("id", "order/")`.
Resource = Union[str, Tuple[str, str]]


def protections(tables: Mapping[str, Resource]) -> Iterator[Tuple[str, str, str]]:
    """The name, column and prefix of each table."""
    for table, resource in tables.items():
        column, prefix = (resource, "") if isinstance(resource, str) else resource
        yield table, column, prefix
