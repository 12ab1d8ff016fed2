"""The app that protects tables after each migration."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.models.signals import post_migrate

from ..tables import protections


class FenceConfig(AppConfig):
    """Connects the protection to the end of `migrate`."""

    name = "fence.django"
    label = "fence"

    def ready(self) -> None:
        post_migrate.connect(protect_tables, sender=self)


def protect_tables(using: str, **_: Any) -> None:
    """Protects the tables of `FENCE_TABLES` in this database, again or for the first time.

    A migration that rebuilds a table loses its triggers. Each table is protected in a transaction
    of its own, because several exclusive locks could deadlock with writers.
    """
    connection = connections[using]
    if connection.vendor != "postgresql":
        return
    for table, column, prefix in protections(getattr(settings, "FENCE_TABLES", {})):
        name = connection.ops.quote_name(table)
        with connection.cursor() as cursor:
            cursor.execute("select to_regclass(%s) is not null", [name])
            if cursor.fetchone()[0]:
                protect = "select fence.protect(%s::regclass, %s, prefix => %s)"
                cursor.execute(protect, [name, column, prefix])
            elif table not in connection.introspection.django_table_names():
                raise ImproperlyConfigured(f"FENCE_TABLES names {table}, which does not exist")
            # Otherwise its migration has not been applied, or it is in another database.
