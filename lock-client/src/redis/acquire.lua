-- Grants the lock with the next token, if it is free and no other holder is before this one in the
-- queue.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the counter
--       3 the queue
--       4 the queue's deadlines
-- ARGV  1 holder
--       2 ttl in milliseconds
--       3 the value at which a missing counter starts
--       4 1 if the holder waits in the queue when the lock is not free, else 0
--       5 how many milliseconds an unused counter is kept; 0 for ever
-- Returns {1, token, grant} if this holder holds the lock, else {0, remaining ms, or -1 if the present
-- lock never expires}.

local fair = ARGV[4] == '1'
local held = redis.call('GET', KEYS[1])
if held then
    local token, grant, holder = string.match(held, '^(%d+) (%d+) (.*)$')
    if holder == ARGV[1] then
        -- A retry after a lost reply.
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        keep(KEYS[2], ARGV[2], ARGV[5])
        return {1, tonumber(token), tonumber(grant)}
    end
    if fair then
        enqueue(KEYS[3], KEYS[4], ARGV[1])
    end
    return {0, redis.call('PTTL', KEYS[1])}
end

local first, left = first_alive(KEYS[3], KEYS[4])
if first and first ~= ARGV[1] then
    if fair then
        enqueue(KEYS[3], KEYS[4], ARGV[1])
    end
    return {0, left}
end

local last, problem = last_token(KEYS[2], ARGV[3])
if not last then
    return redis.error_reply(problem)
end
local token = digits(last + 1)
redis.call('SET', KEYS[2], token)
keep(KEYS[2], ARGV[2], ARGV[5])
redis.call('SET', KEYS[1], token .. ' ' .. token .. ' ' .. ARGV[1], 'NX', 'PX', ARGV[2])
if first then
    dequeue(KEYS[3], KEYS[4], ARGV[1])
end
return {1, last + 1, last + 1}
