-- Grants the lock in the cases that are not usual, or lets the holder wait. It continues acquire.lua.

local own, since = string.match(ARGV[1], '^(%S*) (%d+)')

-- 1. Take the counter back if that has incremented it.
if type(token) == 'number' then
    if token == 1 and redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then
        -- The counter did not exist, but the lock or the queue.
        redis.call('DEL', KEYS[2])
    else
        redis.call('SET', KEYS[2], digits(token - 1), 'KEEPTTL')
    end
end

-- 2. Is the lock held?
local held = redis.call('GET', KEYS[1])
if held then
    local last, grant, holder = string.match(held, '^(%d+) (%d+) (%S*)')
    if holder == own then
        -- A retry after a lost reply.
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        keep(KEYS[2], ARGV[2], ARGV[4])
        return {1, tonumber(last), tonumber(grant)}
    end
    local remaining = redis.call('PTTL', KEYS[1])
    if ARGV[3] ~= '1' then
        return {0, remaining}
    end
    local ahead, sleep = enqueue(KEYS[3], KEYS[4], own)
    if ahead < near and remaining >= 0 then
        sleep = math.min(sleep, remaining + 1)
    end
    return {0, remaining, ahead, sleep}
end

-- 3. Is another holder before this one? The first waiter may be dead.
local channel = string.gsub(KEYS[1], 'lock$', 'freed')
local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
if first and first ~= own then
    local left
    first, left = first_waiter(KEYS[3], KEYS[4], channel)
    if first and first ~= own then
        if ARGV[3] ~= '1' then
            return {0, left}
        end
        -- If the first waiter is dead, somebody has to find that out, and to stay alive meanwhile. Not
        -- all try at the same moment.
        local ahead = enqueue(KEYS[3], KEYS[4], own)
        local later = math.floor(nap * ahead / redis.call('ZCARD', KEYS[3]))
        return {0, left, ahead, ahead < near and math.min(left + 1, nap) or left + 1 + later}
    end
end

-- 4. Grant the lock.
local last, problem = last_token(KEYS[2], since)
if not last then
    return redis.error_reply(problem)
end
local number = digits(last + 1)
redis.call('SET', KEYS[2], number, 'KEEPTTL')
redis.call('SET', KEYS[1], number .. ' ' .. number .. ' ' .. ARGV[1], 'NX', 'PX', ARGV[2])
keep(KEYS[2], ARGV[2], ARGV[4])
if first then
    dequeue(KEYS[3], KEYS[4], own)
    -- This asks the waiter that is near the head now.
    first_waiter(KEYS[3], KEYS[4], channel)
end
return last + 1
