-- Sets the full ttl if the lock still belongs to this ownership.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the counter
-- ARGV  1 holder
--       2 grant
--       3 ttl in milliseconds
--       4 for how many milliseconds a counter is kept that isn't used; 0 for ever
-- answers the present token, 0 if the lock is no longer this ownership's

local held = redis.call('GET', KEYS[1])
local token, grant, holder = string.match(held or '', '^(%d+) (%d+) (.*)$')
if holder ~= ARGV[1] or grant ~= ARGV[2] then
    return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
keep(KEYS[2], ARGV[3], ARGV[4])
return tonumber(token)
