-- Sets the full ttl if the lock still belongs to this ownership.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
-- ARGV  1 holder
--       2 grant
--       3 ttl in milliseconds
-- answers the present token, 0 if the lock is no longer this ownership's

local held = redis.call('GET', KEYS[1])
local token, grant, holder = string.match(held or '', '^(%d+) (%d+) (.*)$')
if holder ~= ARGV[1] or grant ~= ARGV[2] then
    return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return tonumber(token)
