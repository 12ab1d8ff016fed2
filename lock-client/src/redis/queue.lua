-- The queue of a lock's fair waiters.
--
-- Two sorted sets contain the waiting holders: `queue` by their arrival, `alive` by the server's time in
-- milliseconds until which they count as alive. Each try of a waiter extends that time.

-- How many milliseconds a waiter counts as alive after its last try.
local patience = 3000

local function now_ms()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Removes a holder, and returns whether it was in the queue.
local function dequeue(queue, alive, holder)
    return redis.call('ZREM', queue, holder) == 1 and redis.call('ZREM', alive, holder) == 1
end

-- Adds a holder at the end, unless it is in the queue already, and extends its time.
local function enqueue(queue, alive, holder)
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    redis.call('ZADD', queue, 'NX', (last[2] or 0) + 1, holder)
    redis.call('ZADD', alive, now_ms() + patience, holder)
    -- A queue whose waiters have all crashed disappears.
    redis.call('PEXPIRE', queue, patience)
    redis.call('PEXPIRE', alive, patience)
end

-- Returns the first waiter that is alive, and for how many more milliseconds. Removes those before it.
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
        dequeue(queue, alive, first)
        first = redis.call('ZRANGE', queue, 0, 0)[1]
    end
end

