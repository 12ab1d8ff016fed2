# Python's package redis, and its Lock.

import threading
import time

import redis
import redis.lock

client = redis.Redis.from_url(sys.argv[1])


def pings(count):
    for _ in range(count):
        begun = time.perf_counter_ns()
        client.ping()
        yield time.perf_counter_ns() - begun


def cycles(count, name, ttl):
    for _ in range(count):
        begun = time.perf_counter_ns()
        lock = client.lock(name, timeout=ttl)
        lock.acquire()
        lock.release()
        yield time.perf_counter_ns() - begun


def handovers(count, name, ttl, waiters, hold):
    """Like `handover.rs`: the first holder keeps the lock until all others wait for it. After a
    release, a client waits until the next client holds the lock, and then queues again."""
    times = []
    turns = 0
    release_begun = None
    waiting = set()
    changed = threading.Condition()

    class Lock(redis.lock.Lock):
        def do_acquire(self, token):
            acquired = super().do_acquire(token)
            if not acquired:
                with changed:
                    waiting.add(threading.get_ident())
                    changed.notify_all()
            return acquired

    def take_turns():
        nonlocal turns, release_begun
        while True:
            lock = client.lock(name, timeout=ttl, lock_class=Lock)
            lock.acquire()
            acquired_at = time.perf_counter_ns()
            with changed:
                if release_begun is not None and len(times) < count:
                    times.append(acquired_at - release_begun)
                turns += 1
                turn = turns
                changed.notify_all()
            if turn > count:
                lock.release()
                return
            if turn == 1:
                with changed:
                    changed.wait_for(lambda: len(waiting) == waiters)
            until = time.perf_counter() + hold
            while time.perf_counter() < until:
                client.ping()
            release_begun = time.perf_counter_ns()
            lock.release()
            with changed:
                changed.wait_for(lambda: turns > turn)

    clients = [threading.Thread(target=take_turns, daemon=True) for _ in range(waiters + 1)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    return times


answer_requests({"pings": pings, "cycles": cycles, "handovers": handovers})
