
-- The holder does not have the lock, or the counter is another.
raise_counter(KEYS[2], ARGV[2])
if holder ~= ARGV[1] then
    return 0
end
redis.call('PUBLISH', ARGV[3], '')
return redis.call('DEL', KEYS[1])
