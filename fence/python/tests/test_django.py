"""Fenced transactions with Django."""

import itertools
import unittest

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

import bank
from claims import READ, WRITE, Claims


def database(url, **more):
    parts = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "HOST": parts["host"],
        "PORT": parts.get("port", ""),
        "USER": parts["user"],
        "OPTIONS": {"sslmode": "disable"},
        **more,
    }


settings.configure(
    DATABASES={
        "default": database(bank.URL),
        "second": database(bank.URL),
        "lossy": database(bank.LOSSY_URL),
        "owner": database(bank.OWNER_URL),
        "without_autocommit": database(bank.URL, AUTOCOMMIT=False),
        "sqlite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    FENCE_TABLES={"ledger_entry": "account_id"},
    INSTALLED_APPS=["fence.django", "ledger"],
)
django.setup()

import fence
import fence.django
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.db.utils import DatabaseError
from django.test import TestCase, override_settings
from fence import Lease

WRITE_ELSEWHERE = "insert into entries values ('another', 1)"


class Django(Claims, unittest.TestCase):
    def setUp(self):
        self.aliases = itertools.cycle(["default", "second"])

    def connect(self, url=bank.URL):
        alias = "lossy" if url == bank.LOSSY_URL else next(self.aliases)
        self.addCleanup(connections[alias].close)
        return connections[alias]

    def fenced(self, connection, *arguments, **keywords):
        return fence.django.fenced(connection, *arguments, **keywords)

    def transaction(self, connection):
        return transaction.atomic(using=connection.alias)

    def execute(self, connection, sql, *parameters):
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return cursor.fetchone()[0] if cursor.description else None

    def test_connection_without_autocommit_is_rejected(self):
        account, connection = bank.open_account(), connections["without_autocommit"]
        self.addCleanup(connection.close)
        with self.assertRaises(fence.TransactionOpen):
            with self.fenced(connection, Lease(account, 33)):
                self.fail("the block must not run")

    def test_inner_block_that_failed_is_not_taken_for_a_commit(self):
        for under in (self.fenced, lambda connection, _lease: self.transaction(connection)):
            account, connection = bank.open_account(), self.connect()

            def fail_within():
                with under(connection, Lease(account, 33)):
                    self.execute(connection, WRITE, 5, account)
                    try:
                        with transaction.atomic(using=connection.alias, savepoint=False):
                            raise KeyError
                    except KeyError:
                        pass

            if under == self.fenced:
                with self.assertRaises(fence.NotCommitted):
                    fail_within()
            else:
                fail_within()  # the control hears of no error
            self.assertEqual(bank.balance(account), 100)

    def test_error_after_the_commit_is_not_a_rejection_of_it(self):
        account, connection, other = bank.open_account(), self.connect(), self.connect()
        with self.assertRaises(DatabaseError) as late:
            with self.fenced(connection, Lease(account, 33)):
                self.execute(connection, WRITE, 5, account)
                transaction.on_commit(
                    lambda: self.execute(other, WRITE_ELSEWHERE), using=connection.alias
                )
        self.assertEqual(late.exception.__cause__.sqlstate, "ZF004")
        self.assertEqual(bank.balance(account), 5, "committed")

    def test_other_databases_are_rejected(self):
        with self.assertRaisesRegex(TypeError, "psycopg 3, not sqlite3.Connection"):
            with self.fenced(connections["sqlite"], Lease("alice", 33)):
                self.fail("the block must not run")


class InTestCase(TestCase):
    """Django keeps a transaction around each of these tests."""

    def test_block_is_a_savepoint(self):
        account = bank.open_account()
        with self.captureOnCommitCallbacks() as callbacks:
            with fence.django.fenced(connection, Lease(account, 34)):
                self.write(account, 5)
        self.assertEqual(callbacks, [])
        with self.assertRaises(fence.Stale):
            with fence.django.fenced(connection, Lease(account, 33)):
                self.fail("the block must not run")
        with connection.cursor() as cursor:
            cursor.execute(READ, [account])
            self.assertEqual(cursor.fetchone(), (5,))
        with self.assertRaises(fence.TransactionOpen):
            with transaction.atomic(), fence.django.fenced(connection, Lease(account, 35)):
                self.fail("the block must not run")

    def write(self, account, balance):
        with connection.cursor() as cursor:
            cursor.execute(WRITE, [balance, account])


class Migrations(unittest.TestCase):
    def setUp(self):
        self.migrate("zero")
        self.migrate("0001")

    def migrate(self, target):
        call_command("migrate", "ledger", target, database="owner", verbosity=0)
        connections["owner"].close()

    def is_protected(self):
        with connections["owner"].cursor() as cursor:
            try:
                cursor.execute("insert into ledger_entry values (default, 'somebody', 1)")
            except DatabaseError as error:
                self.assertEqual(error.__cause__.sqlstate, "ZF004")
                return True
            return False

    def test_migrate_protects_a_table_again_that_a_migration_rebuilt(self):
        self.assertTrue(self.is_protected())
        self.migrate("0002")
        self.assertTrue(self.is_protected())
        self.migrate("0002")
        self.assertTrue(self.is_protected(), "also after a migrate without migrations")

    @override_settings(FENCE_TABLES={})
    def test_control_without_the_setting_the_rebuilt_table_is_not_protected(self):
        self.assertTrue(self.is_protected())
        self.migrate("0002")
        self.assertFalse(self.is_protected())

    def test_table_that_no_model_has_is_an_error(self):
        with override_settings(FENCE_TABLES={"misspelt": "account_id"}):
            with self.assertRaisesRegex(ImproperlyConfigured, "misspelt"):
                self.migrate("0002")

    def test_other_databases_have_no_fence(self):
        call_command("migrate", "ledger", "0001", database="sqlite", verbosity=0)
