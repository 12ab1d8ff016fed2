-- Returns the state of the lock and its counter on this node at one moment.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <floor>".
--       2 the counter.
-- returns {the lock or nil, remaining ms (-1 if it never expires, -2 if it is free), the counter or
--         nil}.

return {
    redis.call('GET', KEYS[1]),
    redis.call('PTTL', KEYS[1]),
    redis.call('GET', KEYS[2]),
}
