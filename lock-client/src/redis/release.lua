-- Releases the lock if the holder holds it, removes the holder from the queue, and notifies the next
-- waiter.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the queue
--       3 the queue's deadlines
-- ARGV  1 holder
--       2 the channel of unordered waiters. The first waiter in the queue is notified on
--         "<channel>:<holder>"
-- Returns 1 if the holder held the lock, else 0.

local held = redis.call('GET', KEYS[1])
local owned = string.match(held or '', '^%d+ %d+ (.*)$') == ARGV[1]
local queued = dequeue(KEYS[2], KEYS[3], ARGV[1])
if owned or (queued and not held) then
    -- Publishing comes first: a user without the right to publish releases nothing. Waiters can't run
    -- before this script ends.
    local first = first_alive(KEYS[2], KEYS[3])
    redis.call('PUBLISH', first and ARGV[2] .. ':' .. first or ARGV[2], '')
end
return owned and redis.call('DEL', KEYS[1]) or 0
