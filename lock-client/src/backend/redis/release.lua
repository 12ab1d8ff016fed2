-- Frees the lock if it is the holder's.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
-- ARGV  1 holder
-- answers 1 if it was, 0 if not

local held = redis.call('GET', KEYS[1])
local holder = string.match(held or '', '^%d+ %d+ (.*)$')
if holder ~= ARGV[1] then
    return 0
end
return redis.call('DEL', KEYS[1])
