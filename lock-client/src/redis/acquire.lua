-- Takes the lock if it is free and nobody is before the holder in the queue, with the next token.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the counter
--       3 the queue
--       4 the queue's alive
-- ARGV  1 holder
--       2 ttl in milliseconds
--       3 what a missing counter starts at
--       4 1 if the holder stands in the queue while it has to wait, else 0
--       5 for how many milliseconds a counter is kept that isn't used; 0 for ever
-- answers {1, token, grant} if the lock is the holder's, {0, remaining ms or -1 if it has no end} if
-- it is another's

local fair = ARGV[4] == '1'
local held = redis.call('GET', KEYS[1])
if held then
    local token, grant, holder = string.match(held, '^(%d+) (%d+) (.*)$')
    if holder == ARGV[1] then
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        keep(KEYS[2], ARGV[2], ARGV[5])
        return {1, tonumber(token), tonumber(grant)}
    end
    if fair then
        stand(KEYS[3], KEYS[4], ARGV[1])
    end
    return {0, redis.call('PTTL', KEYS[1])}
end

local first, left = first_alive(KEYS[3], KEYS[4])
if first and first ~= ARGV[1] then
    if fair then
        stand(KEYS[3], KEYS[4], ARGV[1])
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
    leave(KEYS[3], KEYS[4], ARGV[1])
end
return {1, last + 1, last + 1}
