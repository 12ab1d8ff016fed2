-- Grants the lock with the next token, if it is free and no other holder is before this one in the
-- queue. Here is the usual case; what follows in acquire_else.lua is for all others.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <since> <label>"
--       2 the counter
--       3 the queue
--       4 the times until which waiters must show that they are alive
-- ARGV  1 the owner, "<holder> <since> <label>"; since is the client's Unix time in milliseconds, at
--         which a missing counter starts
--       2 ttl in milliseconds
--       3 1 if the holder waits in the queue when the lock is not free, else 0
--       4 how many milliseconds an unused counter is kept; 0 leaves its expiry as it is
--       5 how many milliseconds a waiter has to show that it is alive
-- Returns the token if it has granted the lock, which is then the grant too; {1, token, grant} if this
-- holder held the lock already; else {0, ms until the lock may be free, or -1 if the present lock never
-- expires}. If the holder is in the queue, this is followed by the number of waiters before it, and the
-- ms that it may sleep.

-- Usually the lock is free, nobody waits, and only the counter exists. Then this is INCR alongside
-- SET NX PX, and defines no functions, because Lua takes longer for those than for the rest.
local existing = redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3])
local token = existing == 1 and redis.pcall('INCR', KEYS[2])
if type(token) == 'number' and token > 1 and token <= 999999999999999 then
    local number = string.format('%.0f', token)
    redis.call('SET', KEYS[1], number .. ' ' .. number .. ' ' .. ARGV[1], 'NX', 'PX', ARGV[2])
    if ARGV[4] ~= '0' then
        redis.call('PEXPIRE', KEYS[2], ARGV[2] + ARGV[4])
    end
    return token
end

