
-- The queue of a lock's fair waiters.
--
-- Two sorted sets contain holders: `queue` all that wait, by their arrival; `alive` those that must show
-- that they are alive, by the server's time in milliseconds until which they must. Each try of a waiter
-- shows it. The waiters near the head must show it all the time, so that a dead one is removed before
-- its turn comes. The others try the less often, the further back they are. When a dead waiter is
-- removed, all others are asked once.

-- How many waiters are near the head.
local near = 3
-- How many milliseconds a waiter has to show that it is alive: the script's last argument.
local patience = tonumber(ARGV[#ARGV])
-- How many milliseconds a waiter near the head may sleep. Another one may sleep for as many naps as it is
-- places behind the last of these.
local nap = math.floor(patience / 3)
-- For how many naps a waiter may sleep. Nobody is notified when a lease expires: if its holder and all
-- waiters near the head have crashed together, another waiter has to find that out. A waiter sleeps for
-- at most 10 naps in a queue of up to 100, so 10 of them try in one nap. It sleeps for longer in a longer
-- queue, so that no more of them try; but for at most 60 naps.
local short, long = 10, 60
-- How many milliseconds the sets exist after the last try.
local lifetime = 3 * nap * long

local function now_ms()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Removes a holder, and returns whether it was in the queue.
local function dequeue(queue, alive, holder)
    redis.call('ZREM', alive, holder)
    return redis.call('ZREM', queue, holder) == 1
end

-- Adds a holder at the end, unless it is in the queue already, and notes that it is alive. Returns how
-- many waiters are before it, and how many milliseconds it may sleep until it must try again.
local function enqueue(queue, alive, holder)
    local ahead = redis.call('ZRANK', queue, holder)
    if not ahead then
        local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
        redis.call('ZADD', queue, (last[2] or 0) + 1, holder)
        ahead = redis.call('ZRANK', queue, holder)
    end
    -- A queue whose waiters have all crashed disappears. This comes before ZADD: a Redis whose memory is
    -- full rejects a script whose first write may need memory.
    redis.call('PEXPIRE', queue, lifetime)
    local now = now_ms()
    if ahead < near then
        redis.call('ZADD', alive, now + patience, holder)
        redis.call('PEXPIRE', alive, lifetime)
    else
        redis.call('ZREM', alive, holder)
    end
    local longest = math.min(math.max(math.ceil(redis.call('ZCARD', queue) / short), short), long)
    -- Each place in the queue has its own moment to try, so that not all try at the same time.
    local own_moment = longest - (math.floor(now / nap) - ahead) % longest
    return ahead, nap * math.min(math.max(ahead + 1 - near, 1), own_moment)
end

-- Asks holders to show that they are alive, unless they already have to. Not all try at the same moment.
local function ask(alive, channel, now, holders)
    for place, holder in ipairs(holders) do
        if redis.call('ZADD', alive, 'NX', now + patience, holder) == 1 then
            redis.call('PUBLISH', channel .. ':' .. holder, math.floor(nap * place / #holders))
        end
    end
    redis.call('PEXPIRE', alive, lifetime)
end

-- Removes the dead waiters. Returns the first of the others, and in how many milliseconds it counts as
-- dead.
local function first_waiter(queue, alive, channel)
    local holders = redis.call('ZRANGE', queue, 0, near - 1)
    if not holders[1] then
        return
    end
    local now = now_ms()
    local deadlines = redis.call('ZMSCORE', alive, unpack(holders))
    local any_unasked = false
    for _, deadline in ipairs(deadlines) do
        any_unasked = any_unasked or not deadline
        if deadline and tonumber(deadline) <= now then
            for _, dead in ipairs(redis.call('ZRANGE', alive, '-inf', now, 'BYSCORE')) do
                dequeue(queue, alive, dead)
            end
            local others = redis.call('ZRANGE', queue, 0, -1)
            if others[1] then
                redis.call('PUBLISH', channel .. ':' .. others[1], '')
            end
            ask(alive, channel, now, others)
            return first_waiter(queue, alive, channel)
        end
    end
    if any_unasked then
        ask(alive, channel, now, holders)
    end
    local left = (deadlines[1] or now + patience) - now
    if left > patience then
        -- The clock went back.
        redis.call('ZADD', alive, now + patience, holders[1])
        left = patience
    end
    return holders[1], left
end

