
-- The node did not grant this token to the holder, or the counter is another by now.
raise_counter(KEYS[2], ARGV[3])
if string.match(lock or '', '^%d+ (%S+)') ~= ARGV[2] then
    return 0
end
redis.call('PUBLISH', ARGV[4], '')
return redis.call('DEL', KEYS[1])
