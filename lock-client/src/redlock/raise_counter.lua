-- Raises a counter to a token, if it is missing or below. Returns whether it was raised; nil if the key
-- has something else than a counter. That stays as it is: the node grants nothing from it.
local function raise_counter(counter, token)
    local last = redis.pcall('GET', counter)
    local number = type(last) == 'string' and string.find(last, '^%d+$') and tonumber(last)
    if last and not (number and number <= 999999999999999) then
        return nil
    end
    if tonumber(token) > (number or 0) then
        redis.call('SET', counter, token)
        return true
    end
    return false
end

