"""An app with a protected table, for the tests of `migrate`."""
