-- Grants the lock with the next token, if it is free and no other holder is before this one in the
-- queue.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <since> <label>"
--       2 the counter
--       3 the queue
--       4 the times until which waiters must show that they are alive
-- ARGV  1 holder
--       2 ttl in milliseconds
--       3 the client's Unix time in milliseconds, at which a missing counter starts
--       4 1 if the holder waits in the queue when the lock is not free, else 0
--       5 how many milliseconds an unused counter is kept; 0 leaves its expiry as it is
--       6 the label
-- Returns {1, token, grant} if this holder holds the lock, else {0, ms until the lock may be free, or -1
-- if the present lock never expires}. If the holder is in the queue, this is followed by the number of
-- waiters before it, and the ms that it may sleep.

local token, first

-- Usually the lock is free, nobody waits, and only the counter exists.
local existing = redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3])
if existing == 0 then
    token = first_token(KEYS[2], ARGV[3])
elseif existing == 1 then
    token = next_token(KEYS[2])
    if token == 1 and redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then
        -- The counter did not exist, but the lock or the queue.
        redis.call('DEL', KEYS[2])
        token = nil
    end
end

if not token then
    local held = redis.call('GET', KEYS[1])
    if held then
        local last, grant, holder = string.match(held, '^(%d+) (%d+) (%S*)')
        if holder == ARGV[1] then
            -- A retry after a lost reply.
            redis.call('PEXPIRE', KEYS[1], ARGV[2])
            keep(KEYS[2], ARGV[2], ARGV[5])
            return {1, tonumber(last), tonumber(grant)}
        end
        local remaining = redis.call('PTTL', KEYS[1])
        if ARGV[4] ~= '1' then
            return {0, remaining}
        end
        local ahead, sleep = enqueue(KEYS[3], KEYS[4], ARGV[1])
        if ahead < near and remaining >= 0 then
            sleep = math.min(sleep, remaining + 1)
        end
        return {0, remaining, ahead, sleep}
    end
    local left
    local channel = string.gsub(KEYS[1], 'lock$', 'freed')
    first, left = first_waiter(KEYS[3], KEYS[4], channel)
    if first and first ~= ARGV[1] then
        if ARGV[4] ~= '1' then
            return {0, left}
        end
        -- If the first waiter is dead, somebody has to find that out.
        return {0, left, enqueue(KEYS[3], KEYS[4], ARGV[1]), left + 1}
    end
    local counts = redis.call('EXISTS', KEYS[2]) == 1
    token = counts and next_token(KEYS[2]) or first_token(KEYS[2], ARGV[3])
end

if type(token) == 'table' then
    return token
end
local number = digits(token)
local lock = number .. ' ' .. number .. ' ' .. ARGV[1] .. ' ' .. ARGV[3] .. ' ' .. ARGV[6]
redis.call('SET', KEYS[1], lock, 'NX', 'PX', ARGV[2])
keep(KEYS[2], ARGV[2], ARGV[5])
if first then
    dequeue(KEYS[3], KEYS[4], ARGV[1])
end
return {1, token, token}
