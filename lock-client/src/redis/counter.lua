-- The counter of a lock, which is its last token.

-- Returns a number in plain digits: '..' would print numbers from 1e14 on with an exponent.
local function digits(number)
    return string.format('%.0f', number)
end

-- Returns the last token as a number and as its text, or those of the value at which a missing counter
-- starts; or nil and an error. Scripts check everything before they change anything, because a script that
-- fails half way leaves its changes.
local function last_token(counter, start)
    local text = redis.call('GET', counter) or start
    local last = string.find(text, '^%d+$') and tonumber(text)
    if not last then
        return nil, 'FENCED the counter is not a whole number: ' .. counter
    end
    if last >= 999999999999999 then
        return nil, 'FENCED the counter has reached the highest token: ' .. counter
    end
    return last, text
end

-- Keeps the counter for the retention after the ttl. A retention of 0 leaves the counter's expiry as it
-- is: another client may have set it.
local function keep(counter, ttl, retention)
    if tonumber(retention) > 0 then
        redis.call('PEXPIRE', counter, ttl + retention)
    end
end
