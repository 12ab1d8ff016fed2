"""What holds for fenced transactions with every library. Each test that something is rejected has
its control: the same program without `fenced` loses an update, or hears of no error."""

import traceback

import fence
from fence import Lease

import bank

READ = "select balance from accounts where account_id = %s"
WRITE = "update accounts set balance = %s where account_id = %s"


class Claims:
    """The tests. A subclass says how its library does these things."""

    def connect(self, url=bank.URL):
        """Returns a new connection, or what stands for one."""
        raise NotImplementedError

    def fenced(self, connection, *arguments, **keywords):
        raise NotImplementedError

    def transaction(self, connection):
        """The library's own transaction, as a context manager."""
        raise NotImplementedError

    def execute(self, connection, sql, *parameters):
        """Executes a statement, and returns the first value of the first row, if there is one."""
        raise NotImplementedError

    def write_late(self, under):
        """Client 33 reads and pauses; client 34 withdraws 30; client 33 wakes up, and withdraws 50
        from what it has read. `under(connection, lease)` is the transaction. Returns the account.
        """
        account = bank.open_account(100)
        early, late = Lease(account, 33, "early"), Lease(account, 34, "late")
        sleepy, other = self.connect(), self.connect()
        with under(sleepy, early):
            read = self.execute(sleepy, READ, account)
        with under(other, late):
            self.execute(other, WRITE, self.execute(other, READ, account) - 30, account)
        self.assertEqual(bank.balance(account), 70)
        self.account = account
        with under(sleepy, early):
            self.execute(sleepy, WRITE, read - 50, account)

    def test_late_write_with_an_old_token_is_stale(self):
        with self.assertRaises(fence.Stale) as stale:
            self.write_late(self.fenced)
        error = stale.exception
        self.assertEqual((error.resource, error.token, error.highest_token), (self.account, 33, 34))
        self.assertIsNotNone(error.__cause__)
        self.assertEqual(bank.balance(self.account), 70)

    def test_control_the_same_program_without_fenced_loses_an_update(self):
        self.write_late(lambda connection, _lease: self.transaction(connection))
        self.assertEqual(bank.balance(self.account), 50, "the withdrawal of 30 is lost")

    def test_token_of_another_holder_is_a_holder_conflict(self):
        account, connection = bank.open_account(), self.connect()
        with self.fenced(connection, Lease(account, 33, "one")):
            pass
        with self.assertRaises(fence.HolderConflict) as conflict:
            with self.fenced(connection, Lease(account, 33, "another")):
                self.fail("the block must not run")
        self.assertEqual(conflict.exception.highest_token, 33)
        self.assertNotIsInstance(conflict.exception, fence.Stale)

    def test_no_error_of_a_claim_prints_the_holder(self):
        account, connection = bank.open_account(), self.connect()
        with self.fenced(connection, Lease(account, 34)):
            pass
        with self.transaction(connection):
            pid = self.execute(connection, "select pg_backend_pid()")
        lease, errors = Lease(account, 33, "secret-holder"), []
        for _ in range(2):
            try:
                with self.fenced(connection, lease):
                    self.fail("the block must not run")
            except Exception:
                errors.append(traceback.format_exc())
            bank.end_connection(pid)
        self.assertIn("Stale", errors[0])
        self.assertNotIn("secret-holder", "".join(errors))

    def test_after_a_rejection_the_connection_can_be_used(self):
        account, connection = bank.open_account(), self.connect()
        with self.fenced(connection, Lease(account, 34)):
            pass
        with self.assertRaises(fence.Stale):
            with self.fenced(connection, Lease(account, 33)):
                self.fail("the block must not run")
        with self.fenced(connection, 35, resource=account, holder="me"):
            self.execute(connection, WRITE, 5, account)
        self.assertEqual((bank.balance(account), bank.token_of(account)), (5, 35))

    def test_rejection_of_one_lease_undoes_the_claims_of_all(self):
        accounts, connection = [bank.open_account(), bank.open_account()], self.connect()
        with self.fenced(connection, Lease(accounts[1], 34)):
            pass
        with self.assertRaises(fence.Stale):
            with self.fenced(connection, [Lease(account, 33) for account in accounts]):
                self.fail("the block must not run")
        self.assertEqual([bank.token_of(account) for account in accounts], [None, 34])

    def test_error_in_the_block_rolls_back_the_claim_and_the_write(self):
        account, connection = bank.open_account(), self.connect()
        with self.assertRaises(KeyError):
            with self.fenced(connection, Lease(account, 33)):
                self.execute(connection, WRITE, 5, account)
                raise KeyError
        self.assertEqual((bank.balance(account), bank.token_of(account)), (100, None))

    def test_write_to_a_protected_table_without_its_token_is_typed(self):
        account, connection = bank.open_account(), self.connect()
        with self.assertRaises(fence.TokenRequired) as required:
            with self.fenced(connection, Lease(account, 33)):
                self.execute(connection, WRITE, 5, account)
                self.execute(connection, "insert into entries values ('another', 1)")
        self.assertEqual(required.exception.resource, "another")
        self.assertEqual(bank.balance(account), 100, "the whole transaction is rolled back")

    def test_other_errors_are_typed(self):
        account, connection = bank.open_account(), self.connect()
        raises = "do $$ begin raise sqlstate '%s' using message = 'm'; end $$"
        typed = {
            "40001": fence.Contended, "40P01": fence.Contended, "55P03": fence.Contended,
            "ZF003": fence.Malformed, "ZF005": fence.TruncateRejected,
        }
        for state, error in typed.items():
            with self.subTest(state), self.assertRaises(error):
                with self.fenced(connection, Lease(account, 33)):
                    self.execute(connection, raises % state)
        with self.assertRaises(fence.Malformed):
            with self.fenced(connection, Lease(account, 0)):
                self.fail("the block must not run")

    def test_error_that_the_block_caught_is_not_taken_for_a_commit(self):
        with self.assertRaises(fence.NotCommitted):
            self.catch_an_error(self.fenced)

    def catch_an_error(self, under):
        account, connection = bank.open_account(), self.connect()
        self.account = account
        with under(connection, Lease(account, 33)):
            self.execute(connection, WRITE, 5, account)
            with self.assertRaisesRegex(Exception, "division by zero"):
                self.execute(connection, "select 1 / 0")

    def test_control_without_fenced_a_caught_error_loses_the_write_silently(self):
        self.catch_an_error(lambda connection, _lease: self.transaction(connection))
        self.assertEqual(bank.balance(self.account), 100)

    def test_another_transaction_is_not_taken_for_a_commit(self):
        for ends in self.ends:
            with self.subTest(ends), self.assertRaises(fence.NotCommitted):
                self.end_and_go_on(self.fenced, ends)
            self.assertEqual(bank.balance(self.account), 100)
            self.assertIsNone(bank.token_of(self.account))

    #: How a block can end its transaction, so that it is in another one afterwards.
    ends = (["rollback"], ["rollback and chain"])

    def end_and_go_on(self, under, ends):
        account, connection = bank.open_account(), self.connect()
        self.account = account
        with under(connection, Lease(account, 33)):
            for end in ends:
                self.execute(connection, end)
            self.execute(connection, WRITE, 5, account)

    def test_control_without_fenced_another_transaction_is_committed(self):
        for ends in self.ends:
            self.end_and_go_on(lambda connection, _lease: self.transaction(connection), ends)
            self.assertEqual(bank.balance(self.account), 5)

    def test_detail_of_anothers_making_does_not_hide_the_error(self):
        account, connection = bank.open_account(), self.connect()
        raises = "do $$ begin raise sqlstate 'ZF003' using message = 'm', detail = '%s'; end $$"
        for detail in ("no JSON", "null", "[1]", '"text"'):
            with self.subTest(detail), self.assertRaises(fence.Malformed):
                with self.fenced(connection, Lease(account, 33)):
                    self.execute(connection, raises % detail)

    def test_open_transaction_is_rejected_and_left_as_it_is(self):
        account, connection = bank.open_account(), self.connect()
        with self.transaction(connection):
            self.execute(connection, WRITE, 5, account)
            with self.assertRaises(fence.TransactionOpen):
                with self.fenced(connection, Lease(account, 33)):
                    self.fail("the block must not run")
            self.assertEqual(self.execute(connection, READ, account), 5)
        self.assertEqual((bank.balance(account), bank.token_of(account)), (5, None))

    def test_fenced_inside_fenced_is_rejected_and_undoes_all(self):
        account, connection = bank.open_account(), self.connect()
        with self.assertRaises(fence.TransactionOpen):
            with self.fenced(connection, Lease(account, 33)):
                self.execute(connection, WRITE, 5, account)
                with self.fenced(connection, Lease(account, 33)):
                    self.fail("the block must not run")
        self.assertEqual((bank.balance(account), bank.token_of(account)), (100, None))

    def test_control_claim_after_the_read_loses_an_update(self):
        account, connection, other = bank.open_account(), self.connect(), self.connect()
        with self.transaction(connection):
            read = self.execute(connection, READ, account)
            with self.fenced(other, Lease(account, 33)):
                self.execute(other, WRITE, 70, account)
            self.execute(connection, "select fence.claim(%s, 34, '')", account)
            self.execute(connection, WRITE, read - 50, account)
        self.assertEqual(bank.balance(account), 50, "the withdrawal of 30 is lost")

    def test_lost_answer_to_the_commit_is_an_unknown_outcome(self):
        account, connection = bank.open_account(), self.connect(bank.LOSSY_URL)
        with self.assertRaises(fence.OutcomeUnknown):
            with self.fenced(connection, Lease(account, 33)):
                self.execute(connection, WRITE, 5, account)
        self.assertEqual((bank.balance(account), bank.token_of(account)), (5, 33), "committed")

    def test_connection_that_the_server_ends_at_the_commit_is_an_unknown_outcome(self):
        account, connection = bank.open_account(), self.connect()
        with self.assertRaises(fence.OutcomeUnknown) as unknown:
            with self.fenced(connection, Lease(account, 33)):
                self.execute(connection, "insert into at_commit values ('end the connection')")
        self.assertIsNotNone(unknown.exception.__cause__)
        self.assertIsNone(bank.token_of(account), "not committed")

    def test_connection_lost_before_the_commit_is_the_drivers_error(self):
        account, connection = bank.open_account(), self.connect()
        with self.assertRaises(Exception) as lost:
            with self.fenced(connection, Lease(account, 33)):
                self.execute(connection, "select pg_terminate_backend(pg_backend_pid())")
        self.assertNotIsInstance(lost.exception, fence.FenceError)

    def test_error_of_the_commit_itself_is_typed(self):
        account, connection = bank.open_account(), self.connect()
        with self.assertRaises(fence.Contended):
            with self.fenced(connection, Lease(account, 33)):
                self.execute(connection, "insert into at_commit values ('contend')")
        self.assertIsNone(bank.token_of(account))
