# Python's package kazoo, and its Lock.

import time

from kazoo.client import KazooClient

client = KazooClient(sys.argv[1])
client.start()


def cycles(count, name):
    for _ in range(count):
        begun = time.perf_counter_ns()
        lock = client.Lock(f"/kazoo/{name}", "me")
        lock.acquire()
        lock.release()
        yield time.perf_counter_ns() - begun


answer_requests({"cycles": cycles})
