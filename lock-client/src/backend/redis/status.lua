-- Tells what the lock and its counter are at one moment.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the counter
-- answers {lock or nil, remaining ms (-1 if it has no end, -2 if it is free), counter or nil}

return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2])}
