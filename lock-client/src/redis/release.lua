-- Releases the lock if the holder holds it, removes the holder from the queue, and notifies the next
-- waiter. Here is the usual case, without functions; release_else.lua is for all others.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <since> <label>"
--       2 the queue
--       3 the times until which waiters must show that they are alive
-- ARGV  1 holder
--       2 the channel of unordered waiters; a waiter in the queue has "<channel>:<holder>"
--       3 how many milliseconds a waiter has to show that it is alive
-- Returns 1 if the holder held the lock, else 0.

local held = redis.call('GET', KEYS[1])
local owned = string.match(held or '', '^%d+ %d+ (%S*)') == ARGV[1]
-- Publishing comes first: a user without the right to publish releases nothing. Waiters can't run before
-- this script ends.
if owned and redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('PUBLISH', ARGV[2], '')
    return redis.call('DEL', KEYS[1])
end

