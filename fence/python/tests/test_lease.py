"""Leases, without a database."""

import json
import os
import unittest
from unittest import mock

from fence import Lease
from fence.lease import in_claim_order

ENVIRONMENT = {"FENCING_RESOURCE": "a b", "FENCING_TOKEN": "33", "FENCING_HOLDER": "me"}


class Leases(unittest.TestCase):
    def test_lease_of_the_environment(self):
        with mock.patch.dict(os.environ, ENVIRONMENT):
            self.assertEqual(Lease.from_environment(), Lease("a b", 33, "me"))
        for name in ENVIRONMENT:
            rest = {other: value for other, value in ENVIRONMENT.items() if other != name}
            with mock.patch.dict(os.environ, rest, clear=True):
                with self.assertRaisesRegex(LookupError, f"{name} is not set"):
                    Lease.from_environment()

    def test_lease_of_a_handle(self):
        handle = {"name": "a", "token": 33, "holder": "me", "grant": 32, "ttl_ms": 600}
        self.assertEqual(Lease.from_json(json.dumps(handle)), Lease("a", 33, "me"))
        lease = {"resource": "a", "token": 33, "holder": "me"}
        self.assertEqual(Lease.from_json(json.dumps(lease)), Lease("a", 33, "me"))

    def test_holder_is_not_printed(self):
        self.assertNotIn("secret", repr(Lease("a", 33, "secret")))

    def test_leases_are_claimed_in_the_byte_order_of_their_resources(self):
        leases = [Lease(resource, 33) for resource in ["é", "a", "Z", "\U00010000", "\uffff"]]
        order = [lease.resource for lease in in_claim_order(leases, None, "")]
        self.assertEqual(order, ["Z", "a", "é", "\uffff", "\U00010000"])

    def test_token_alone_needs_a_resource_and_a_lease_has_one(self):
        self.assertEqual(in_claim_order(33, "a", "me"), [Lease("a", 33, "me")])
        for arguments in [(33, None, ""), (Lease("a", 33), "a", ""), (Lease("a", 33), None, "me")]:
            with self.assertRaises(TypeError):
                in_claim_order(*arguments)
        with self.assertRaises(ValueError):
            in_claim_order([], None, "")
