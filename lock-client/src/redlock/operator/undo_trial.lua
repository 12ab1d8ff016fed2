-- Leaves nothing of a trial, if this trial has the lock.
--
-- KEYS  1 the lock.
--       2 the counter.
-- ARGV  1 holder.

if string.match(redis.call('GET', KEYS[1]) or '', '^%d+ (%S+)') == ARGV[1] then
    redis.call('DEL', KEYS[1], KEYS[2])
end
return 1
