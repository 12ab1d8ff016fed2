-- Returns the state of the lock, its counter and its queue at one moment.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <since> <label>"
--       2 the counter
--       3 the queue
-- Returns {lock or nil, remaining ms (-1 if it never expires, -2 if it is free), counter or nil, the
-- number of waiters in the queue}.

return {
    redis.call('GET', KEYS[1]),
    redis.call('PTTL', KEYS[1]),
    redis.call('GET', KEYS[2]),
    redis.call('ZCARD', KEYS[3]),
}
