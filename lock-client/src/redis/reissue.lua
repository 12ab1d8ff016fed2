-- Swaps the token for a higher one if the lock still belongs to this ownership. The ttl stays.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the counter
-- ARGV  1 holder
--       2 grant
--       3 what the new token must be above
--       4 what a missing counter starts at
--       5 for how many milliseconds a counter is kept that isn't used; 0 for ever
-- answers the new token, 0 if the lock is no longer this ownership's

local held = redis.call('GET', KEYS[1])
local token, grant, holder = string.match(held or '', '^(%d+) (%d+) (.*)$')
if holder ~= ARGV[1] or grant ~= ARGV[2] then
    return 0
end
local last, problem = last_token(KEYS[2], ARGV[4])
if not last then
    return redis.error_reply(problem)
end
last = math.max(last, tonumber(ARGV[3]), tonumber(token))
if last >= 999999999999999 then
    return redis.error_reply('FENCED there is no token above the highest: ' .. KEYS[2])
end
redis.call('SET', KEYS[2], digits(last + 1))
keep(KEYS[2], math.max(redis.call('PTTL', KEYS[1]), 0), ARGV[5])
redis.call('SET', KEYS[1], digits(last + 1) .. ' ' .. grant .. ' ' .. holder, 'KEEPTTL')
return last + 1
