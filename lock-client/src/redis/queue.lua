-- The queue of those who wait for a lock in the order of their coming.
--
-- Two sorted sets have the holders that wait: `queue` by their arrival, `alive` by the time (in
-- milliseconds, of this server) until when they count as alive unless they are heard of again.

-- For how many milliseconds one who stands in the queue counts as alive, if nothing is heard of it.
local patience = 3000

local function now_ms()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Has a holder leave, and tells whether it was there.
local function leave(queue, alive, holder)
    return redis.call('ZREM', queue, holder) == 1 and redis.call('ZREM', alive, holder) == 1
end

-- Puts a holder at the end, if it isn't in the queue, and notes that it is alive.
local function stand(queue, alive, holder)
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    redis.call('ZADD', queue, 'NX', (last[2] or 0) + 1, holder)
    redis.call('ZADD', alive, now_ms() + patience, holder)
    -- If nobody is heard of any more, nothing is left.
    redis.call('PEXPIRE', queue, patience)
    redis.call('PEXPIRE', alive, patience)
end

-- The first in the queue that is alive, and for how many milliseconds yet. Those before it leave.
local function first_alive(queue, alive)
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    while first do
        local left = (redis.call('ZSCORE', alive, first) or 0) - now_ms()
        if left > patience then
            -- The clock went back.
            redis.call('ZADD', alive, now_ms() + patience, first)
            left = patience
        end
        if left > 0 then
            return first, left
        end
        leave(queue, alive, first)
        first = redis.call('ZRANGE', queue, 0, 0)[1]
    end
end

