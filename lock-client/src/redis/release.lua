-- Releases the lock if the holder holds it, removes the holder from the queue, and notifies the next
-- waiter.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <since> <label>"
--       2 the queue
--       3 the times until which waiters must show that they are alive
-- ARGV  1 holder
--       2 the channel of unordered waiters; a waiter in the queue has "<channel>:<holder>"
-- Returns 1 if the holder held the lock, else 0.

local held = redis.call('GET', KEYS[1])
local owned = string.match(held or '', '^%d+ %d+ (%S*)') == ARGV[1]
-- A holder has left the queue when it was granted the lock.
if owned or dequeue(KEYS[2], KEYS[3], ARGV[1]) then
    local first = first_waiter(KEYS[2], KEYS[3], ARGV[2])
    if owned or not held then
        -- Publishing comes first: a user without the right to publish releases nothing. Waiters can't
        -- run before this script ends.
        redis.call('PUBLISH', first and ARGV[2] .. ':' .. first or ARGV[2], '')
    end
end
return owned and redis.call('DEL', KEYS[1]) or 0
