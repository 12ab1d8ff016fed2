-- Raises a counter to a token, if it is below. A counter that is not a number stays as it is.
local function raise_counter(counter, token)
    local last = redis.call('GET', counter)
    if tonumber(token) > 0 and (not last or (tonumber(last) or math.huge) < tonumber(token)) then
        redis.call('SET', counter, token)
    end
end

