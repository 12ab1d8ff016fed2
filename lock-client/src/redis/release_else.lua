-- Releases the lock when there is a queue, or removes a waiter from it. It continues release.lua.

-- A holder has left the queue when it was granted the lock. ZREM comes first all the same: a Redis whose
-- memory is full rejects a script whose first write may need memory.
if dequeue(KEYS[2], KEYS[3], ARGV[1]) or owned then
    local first = first_waiter(KEYS[2], KEYS[3], ARGV[2])
    if owned or not held then
        redis.call('PUBLISH', first and ARGV[2] .. ':' .. first or ARGV[2], '')
    end
end
return owned and redis.call('DEL', KEYS[1]) or 0
