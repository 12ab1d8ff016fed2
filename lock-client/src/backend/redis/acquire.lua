-- Takes the lock if it is free, with the next token.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the counter
-- ARGV  1 holder
--       2 ttl in milliseconds
--       3 what a missing counter starts at
-- answers {1, token, grant} if the lock is the holder's, {0, remaining ms or -1 if it has no end} if
-- it is another's

local held = redis.call('GET', KEYS[1])
if held then
    local token, grant, holder = string.match(held, '^(%d+) (%d+) (.*)$')
    if holder == ARGV[1] then
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        return {1, tonumber(token), tonumber(grant)}
    end
    return {0, redis.call('PTTL', KEYS[1])}
end

-- All is checked before anything is changed: a script that fails half way leaves its changes.
local counter = redis.call('GET', KEYS[2])
local last = tonumber(counter or ARGV[3])
if not last or last < 0 or last ~= math.floor(last) then
    return redis.error_reply('FENCED the counter is not a whole number: ' .. KEYS[2])
end
if last >= 999999999999999 then
    return redis.error_reply('FENCED the counter has reached the highest token: ' .. KEYS[2])
end
if not counter then
    redis.call('SET', KEYS[2], ARGV[3])
end
local token = redis.call('INCR', KEYS[2])
-- '..' would print numbers from 1e14 on with an exponent.
local lock = string.format('%.0f %.0f %s', token, token, ARGV[1])
redis.call('SET', KEYS[1], lock, 'NX', 'PX', ARGV[2])
return {1, token, token}
