"""Fenced transactions with SQLAlchemy 2."""

import unittest

import fence
import fence.sqlalchemy
from fence import Lease
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import NullPool

import bank
from claims import WRITE, Claims


def engine(url=bank.URL, **settings):
    url = make_url(url).set(drivername="postgresql+psycopg")
    return create_engine(url, poolclass=NullPool, **settings)


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"

    account_id: Mapped[str] = mapped_column(primary_key=True)
    balance: Mapped[int]


class Entry(Base):
    __tablename__ = "entries"

    account_id: Mapped[str] = mapped_column(primary_key=True)
    amount: Mapped[int]


class SqlAlchemy(Claims):
    def fenced(self, target, *arguments, **keywords):
        return fence.sqlalchemy.fenced(target, *arguments, **keywords)

    def transaction(self, target):
        return target.begin()


class WithSession(SqlAlchemy, unittest.TestCase):
    def connect(self, url=bank.URL):
        session = Session(engine(url))
        self.addCleanup(session.close)
        return session

    def execute(self, session, sql, *parameters):
        result = session.connection().exec_driver_sql(sql, parameters or None)
        return result.scalar() if result.returns_rows else None

    def test_session_that_has_read_is_in_a_transaction(self):
        account, session = bank.open_account(), self.connect()
        session.get(Account, account)
        with self.assertRaises(fence.TransactionOpen):
            with self.fenced(session, Lease(account, 33)):
                self.fail("the block must not run")

    def test_session_on_a_connection_in_a_transaction_is_rejected(self):
        account = bank.open_account()
        with engine().connect() as connection, connection.begin():
            with self.assertRaises(fence.TransactionOpen):
                with self.fenced(Session(connection), Lease(account, 33)):
                    self.fail("the block must not run")

    def deposit_after_another(self, under):
        """Loads an account, then lets another client deposit 20, and deposits 5 itself."""
        account, other = bank.open_account(100), self.connect()
        with Session(engine(), expire_on_commit=False) as session:
            with session.begin():
                loaded = session.get(Account, account)
            with self.fenced(other, Lease(account, 33)):
                other.get(Account, account).balance += 20
            with under(session, Lease(account, 34)):
                loaded.balance += 5
        return bank.balance(account)

    def test_session_forgets_what_it_loaded_before_the_claim(self):
        self.assertEqual(self.deposit_after_another(self.fenced), 125)

    def test_control_without_fenced_the_session_remembers_and_loses_an_update(self):
        def unfenced(session, _lease):
            return session.begin()

        self.assertEqual(self.deposit_after_another(unfenced), 105)

    def test_rejection_at_the_flush_of_the_commit_is_typed(self):
        account, session = bank.open_account(), self.connect()
        with self.assertRaises(fence.TokenRequired):
            with self.fenced(session, Lease(account, 33)):
                session.add(Entry(account_id="another", amount=1))
        self.assertIsNone(bank.token_of(account))

    def test_value_that_psycopg_cannot_send_is_not_an_unknown_outcome(self):
        account, session = bank.open_account(), self.connect()
        with self.assertRaises(DBAPIError):
            with self.fenced(session, Lease(account, 33)):
                session.add(Entry(account_id="with a NUL \0", amount=1))
        self.assertIsNone(bank.token_of(account))

    def test_scoped_session(self):
        account = bank.open_account()
        session = scoped_session(sessionmaker(engine()))
        self.addCleanup(session.remove)
        with self.fenced(session, Lease(account, 33)):
            session.get(Account, account).balance = 5
        self.assertEqual((bank.balance(account), bank.token_of(account)), (5, 33))

    def roll_back_beside_another(self, under):
        """Rolls back in the block. Then another user of the pool gets the same connection of the
        driver, and is in a transaction when the block ends."""
        account = bank.open_account()
        url = make_url(bank.URL).set(drivername="postgresql+psycopg")
        pool = create_engine(url, pool_size=1, max_overflow=0)
        self.addCleanup(pool.dispose)
        session = Session(pool)
        other = None
        try:
            with under(session, Lease(account, 33)):
                self.execute(session, WRITE, 5, account)
                session.rollback()
                other = pool.connect()
                other.execute(text("select 1"))
        finally:
            other.close()
        self.assertEqual(bank.balance(account), 100)

    def test_rollback_of_the_session_is_not_taken_for_a_commit(self):
        with self.assertRaises(fence.NotCommitted):
            self.roll_back_beside_another(self.fenced)

    def test_control_without_fenced_a_rollback_of_the_session_is_silent(self):
        self.roll_back_beside_another(lambda session, _lease: session.begin())

    def test_savepoint_in_the_block_commits_with_it(self):
        account, session = bank.open_account(), self.connect()
        with self.assertRaises(fence.TokenRequired):
            with self.fenced(session, Lease(account, 33)):
                with session.begin_nested():
                    session.get(Account, account).balance = 5
                self.execute(session, "insert into entries values ('another', 1)")
        self.assertEqual(bank.balance(account), 100)

    def test_error_after_the_commit_is_not_a_rejection_of_it(self):
        account, session = bank.open_account(), self.connect()

        def write_elsewhere(_session):
            with engine().begin() as connection:
                connection.execute(text("insert into entries values ('another', 1)"))

        event.listen(session, "after_commit", write_elsewhere)
        with self.assertRaises(Exception) as late:
            with self.fenced(session, Lease(account, 33)):
                session.get(Account, account).balance = 5
        self.assertNotIsInstance(late.exception, fence.FenceError)
        self.assertEqual(late.exception.orig.sqlstate, "ZF004")
        self.assertEqual(bank.balance(account), 5, "committed")


class WithConnection(SqlAlchemy, unittest.TestCase):
    def connect(self, url=bank.URL):
        connection = engine(url).connect()
        self.addCleanup(connection.close)
        return connection

    def execute(self, connection, sql, *parameters):
        result = connection.exec_driver_sql(sql, parameters or None)
        return result.scalar() if result.returns_rows else None

    def test_autocommit_is_rejected(self):
        account = bank.open_account()
        with engine(isolation_level="AUTOCOMMIT").connect() as connection:
            with self.assertRaisesRegex(ValueError, "AUTOCOMMIT"):
                with self.fenced(connection, Lease(account, 33)):
                    self.fail("the block must not run")
        self.assertIsNone(bank.token_of(account))

    def test_other_drivers_are_rejected(self):
        connection = create_engine("sqlite://").connect()
        self.addCleanup(connection.close)
        with self.assertRaisesRegex(TypeError, "psycopg 3, not sqlite3.Connection"):
            with self.fenced(connection, Lease("alice", 33)):
                self.fail("the block must not run")


class Migrations(unittest.TestCase):
    def migrate(self, entries, then):
        """What Alembic's env.py does: a migration, and more in the same transaction."""
        from alembic.migration import MigrationContext
        from alembic.operations import Operations

        with engine(bank.OWNER_URL).connect() as connection:
            context = MigrationContext.configure(connection)
            with context.begin_transaction():
                with Operations.context(context) as op:
                    op.execute(entries.rebuild())
                then(connection)

    def test_migration_that_rebuilds_a_table_protects_it_again(self):
        entries = bank.Entries()
        self.migrate(entries, lambda c: fence.sqlalchemy.protect(c, entries.protected))
        self.assertTrue(entries.are_protected())

    def test_control_migration_without_the_hook_loses_the_protection(self):
        entries = bank.Entries()
        self.migrate(entries, lambda _connection: None)
        self.assertFalse(entries.are_protected())
