
-- The queue of a lock's fair waiters.
--
-- Two sorted sets contain holders: `queue` all that wait, by their arrival; `alive` those that must show
-- that they are alive, by the server's time in milliseconds until which they must. Each try of a waiter
-- shows it. The waiters near the head must show it all the time, so that a dead one is removed before
-- its turn comes. The others try the less often, the further back they are. When a dead waiter is
-- removed, all others are asked once.

-- How many waiters are near the head.
local near = 3
-- How many milliseconds a waiter near the head may sleep; another one, for each waiter before it.
local nap = 1000
-- How many times that a waiter sleeps at most. Nobody is notified when a lease expires: if its holder and
-- all waiters near the head have crashed together, another waiter has to find that out.
local naps = 10
-- How many milliseconds a waiter has to show that it is alive.
local patience = 3000

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
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    redis.call('ZADD', queue, 'NX', (last[2] or 0) + 1, holder)
    local ahead = redis.call('ZRANK', queue, holder)
    if ahead < near then
        redis.call('ZADD', alive, now_ms() + patience, holder)
    else
        redis.call('ZREM', alive, holder)
    end
    -- A queue whose waiters have all crashed disappears.
    redis.call('PEXPIRE', queue, 10 * patience)
    redis.call('PEXPIRE', alive, 10 * patience)
    return ahead, nap * math.min(math.max(ahead + 1 - near, 1), naps)
end

-- Removes the dead waiters. Returns the first of the others, and in how many milliseconds it counts as
-- dead.
local function first_waiter(queue, alive, channel)
    local holders = redis.call('ZRANGE', queue, 0, near - 1)
    if not holders[1] then
        return
    end
    local now = now_ms()
    local dead = redis.call('ZRANGE', alive, '-inf', now, 'BYSCORE')
    for _, holder in ipairs(dead) do
        dequeue(queue, alive, holder)
    end
    if dead[1] then
        holders = redis.call('ZRANGE', queue, 0, -1)
        if not holders[1] then
            return
        end
        redis.call('PUBLISH', channel .. ':' .. holders[1], '')
    end
    for place, holder in ipairs(holders) do
        if redis.call('ZADD', alive, 'NX', now + patience, holder) == 1 then
            -- It tries after this time, unless its turn comes before. Not all try at the same moment.
            redis.call('PUBLISH', channel .. ':' .. holder, math.floor(nap * place / #holders))
        end
    end
    local left = redis.call('ZSCORE', alive, holders[1]) - now
    if left > patience then
        -- The clock went back.
        redis.call('ZADD', alive, now + patience, holders[1])
        left = patience
    end
    return holders[1], left
end

