-- Swaps the token for a higher one if the lock still belongs to this ownership. The ttl stays.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <since> <label>"
--       2 the counter
-- ARGV  1 holder
--       2 grant
--       3 the token that the new one must be above
--       4 the value at which a missing counter starts
--       5 how many milliseconds an unused counter is kept; 0 leaves its expiry as it is
-- Returns the new token, or 0 if the lock no longer belongs to this ownership.

local held = redis.call('GET', KEYS[1])
local token, grant, holder, rest = string.match(held or '', '^(%d+) (%d+) (%S*)(.*)$')
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
redis.call('SET', KEYS[2], digits(last + 1), 'KEEPTTL')
keep(KEYS[2], math.max(redis.call('PTTL', KEYS[1]), 0), ARGV[5])
redis.call('SET', KEYS[1], digits(last + 1) .. ' ' .. grant .. ' ' .. holder .. rest, 'KEEPTTL')
return last + 1
