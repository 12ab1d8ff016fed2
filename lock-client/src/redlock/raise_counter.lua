-- Raises a counter to a token, if it is missing or below. Returns whether it was raised. A counter
-- that is not a number stays as it is: the node grants nothing from it.
local function raise_counter(counter, token)
    local last = redis.call('GET', counter)
    local is_below = not last or (tonumber(last) or math.huge) < tonumber(token)
    if tonumber(token) > 0 and is_below then
        redis.call('SET', counter, token)
        return true
    end
    return false
end

