-- Sets the full ttl if the lock still belongs to this ownership.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <since> <label>"
--       2 the counter
-- ARGV  1 holder
--       2 grant
--       3 ttl in milliseconds
--       4 how many milliseconds an unused counter is kept; 0 leaves its expiry as it is
-- Returns the present token, or 0 if the lock no longer belongs to this ownership.

local held = redis.call('GET', KEYS[1])
local token, grant, holder = string.match(held or '', '^(%d+) (%d+) (%S*)')
if holder ~= ARGV[1] or grant ~= ARGV[2] then
    return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
keep(KEYS[2], ARGV[3], ARGV[4])
return tonumber(token)
