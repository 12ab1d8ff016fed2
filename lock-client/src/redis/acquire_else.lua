-- Grants the lock in the cases that are not usual, or lets the holder wait. It continues acquire.lua.

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

-- 3. Is another holder before this one?
local channel = string.gsub(KEYS[1], 'lock$', 'freed')
local first, left = first_waiter(KEYS[3], KEYS[4], channel)
if first and first ~= ARGV[1] then
    if ARGV[4] ~= '1' then
        return {0, left}
    end
    -- If the first waiter is dead, somebody has to find that out, and to stay alive meanwhile.
    local ahead = enqueue(KEYS[3], KEYS[4], ARGV[1])
    return {0, left, ahead, ahead < near and math.min(left + 1, nap) or left + 1}
end

-- 4. Grant the lock.
local last, problem = last_token(KEYS[2], ARGV[3])
if not last then
    return redis.error_reply(problem)
end
local number = digits(last + 1)
redis.call('SET', KEYS[2], number, 'KEEPTTL')
local lock = number .. ' ' .. number .. ' ' .. ARGV[1] .. ' ' .. ARGV[3] .. ' ' .. ARGV[6]
redis.call('SET', KEYS[1], lock, 'NX', 'PX', ARGV[2])
keep(KEYS[2], ARGV[2], ARGV[5])
if first then
    dequeue(KEYS[3], KEYS[4], ARGV[1])
end
return last + 1
