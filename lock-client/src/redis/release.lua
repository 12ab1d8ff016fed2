-- Frees the lock if it is the holder's, has it leave the queue, and wakes who is next.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the queue
--       3 the queue's alive
-- ARGV  1 holder
--       2 the channel: whoever waits in no order hears of it there, and each who stands in the queue
--         at "<channel>:<holder>"
-- answers 1 if it was the holder's, 0 if not

local held = redis.call('GET', KEYS[1])
local owned = string.match(held or '', '^%d+ %d+ (.*)$') == ARGV[1]
local queued = leave(KEYS[2], KEYS[3], ARGV[1])
if owned or (queued and not held) then
    -- Nobody runs before the script ends. If this is not allowed, the lock is not freed either.
    local first = first_alive(KEYS[2], KEYS[3])
    redis.call('PUBLISH', first and ARGV[2] .. ':' .. first or ARGV[2], '')
end
return owned and redis.call('DEL', KEYS[1]) or 0
