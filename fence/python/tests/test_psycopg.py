"""Fenced transactions with psycopg 3."""

import threading
import time
import unittest

import fence
import psycopg
import psycopg.rows
from fence import Lease

import bank
from claims import READ, WRITE, Claims


class Psycopg(Claims, unittest.TestCase):
    autocommit = True
    ends = (["rollback", "begin"], ["rollback and chain"])

    def connect(self, url=bank.URL):
        connection = psycopg.connect(url, autocommit=self.autocommit)
        self.addCleanup(connection.close)
        return connection

    def fenced(self, connection, *arguments, **keywords):
        return fence.fenced(connection, *arguments, **keywords)

    def transaction(self, connection):
        return connection.transaction()

    def execute(self, connection, sql, *parameters):
        cursor = connection.execute(sql, parameters or None)
        return cursor.fetchone()[0] if cursor.description else None


class PsycopgWithoutAutocommit(Psycopg):
    autocommit = False
    ends = Claims.ends

    def test_connection_that_has_read_is_in_a_transaction(self):
        account, connection = bank.open_account(), self.connect()
        self.execute(connection, READ, account)
        with self.assertRaises(fence.TransactionOpen):
            with self.fenced(connection, Lease(account, 33)):
                self.fail("the block must not run")
        connection.rollback()
        with self.fenced(connection, Lease(account, 33)):
            self.execute(connection, WRITE, 5, account)
        self.assertEqual(bank.balance(account), 5)


class OnlyPsycopg(unittest.TestCase):
    def connect(self):
        connection = psycopg.connect(bank.URL, autocommit=True)
        self.addCleanup(connection.close)
        return connection

    def test_claim_that_waited_at_repeatable_read_is_contended(self):
        account = bank.open_account()
        holder, waiter, watcher = (self.connect() for _ in range(3))
        waiter.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        errors = []

        def claim():
            try:
                with fence.fenced(waiter, Lease(account, 34)):
                    pass
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=claim)
        with fence.fenced(holder, Lease(account, 33)):
            thread.start()
            waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
            pid = [waiter.info.backend_pid]
            while thread.is_alive() and not watcher.execute(waits, pid).fetchone()[0]:
                time.sleep(0.01)
        thread.join()
        self.assertIsInstance(errors[0], fence.Contended)
        self.assertIn("retry the whole transaction", str(errors[0]))

    def test_claim_in_a_pipeline_is_rejected_before_the_block(self):
        account = bank.open_account()
        connection = self.connect()
        with fence.fenced(connection, Lease(account, 34)):
            pass
        with self.assertRaises(fence.Stale):
            with connection.pipeline(), fence.fenced(connection, Lease(account, 33)):
                self.fail("the block must not run")

    def test_connection_closed_in_the_block_is_not_taken_for_a_commit(self):
        account = bank.open_account()

        def close_in(transaction, connection):
            with transaction:
                connection.execute(WRITE, [5, account])
                connection.close()

        connection = self.connect()
        with self.assertRaises(fence.NotCommitted):
            close_in(fence.fenced(connection, Lease(account, 33)), connection)
        connection = self.connect()
        close_in(connection.transaction(), connection)  # the control hears of no error
        self.assertEqual(bank.balance(account), 100)

    def test_rollback_that_psycopg_swallows_is_not_taken_for_a_commit(self):
        account = bank.open_account()

        def roll_back_in(transaction, connection):
            with transaction:
                connection.execute(WRITE, [5, account])
                raise psycopg.Rollback

        connection = self.connect()
        with self.assertRaises(fence.NotCommitted):
            roll_back_in(fence.fenced(connection, Lease(account, 33)), connection)
        roll_back_in(connection.transaction(), connection)  # the control hears of no error
        self.assertEqual(bank.balance(account), 100)

    def test_rows_of_any_kind(self):
        account, connection = bank.open_account(), self.connect()
        connection.row_factory = psycopg.rows.dict_row
        with fence.fenced(connection, Lease(account, 33)):
            connection.execute(WRITE, [5, account])
        self.assertEqual(bank.balance(account), 5)

    def test_misuse_that_psycopg_finds_is_not_an_unknown_outcome(self):
        account, connection = bank.open_account(), self.connect()
        with self.assertRaises(psycopg.ProgrammingError):
            with fence.fenced(connection, Lease(account, 33)):
                connection.execute(WRITE, [5, account])
                psycopg.Transaction(connection).__enter__()
        self.assertEqual(bank.balance(account), 100)

    def test_rebuilt_table_is_protected_again(self):
        entries = bank.Entries()
        self.assertTrue(entries.are_protected())
        with psycopg.connect(bank.OWNER_URL) as owner:
            owner.execute(entries.rebuild())
        self.assertFalse(entries.are_protected(), "the control: the triggers are gone")
        with psycopg.connect(bank.OWNER_URL) as owner:
            owner.execute(entries.rebuild())
            fence.protect(owner, entries.protected)
        self.assertTrue(entries.are_protected())
        with psycopg.connect(bank.OWNER_URL) as owner:
            fence.protect(owner, entries.protected)
        self.assertTrue(entries.are_protected(), "after a migration that rebuilt nothing")
        with psycopg.connect(bank.OWNER_URL) as owner:
            with self.assertRaises(psycopg.errors.UndefinedTable):
                fence.protect(owner, {"misspelt": "account_id"})
