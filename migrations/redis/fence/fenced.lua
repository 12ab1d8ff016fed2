-- Claims a resource, and then writes one value, in one step. For Redis 4 or newer.
--
--     redis-cli --eval fenced.lua fenced:{alice}:fence {alice}:balance , 34 me SET 70
--
-- KEYS[1]  the resource's fence, a hash of token and holder. A claim takes an expiry off it. Its name
--          is fenced:{…}:fence or any other
-- KEYS[2]  the value's key; none for a claim alone. On a Cluster, the braces in the names put both
--          keys into one slot. No fence is a value: neither a key of the form fenced:{…}:fence, nor
--          one that this script has claimed under another name
-- ARGV[1]  the token
-- ARGV[2]  the holder
-- ARGV[3]  SET, HSET or DEL; none for a claim alone
-- ARGV[4…] the arguments after the key, 7000 at most; none for DEL, because a second key would have no
--          fence. HSET writes no field fenced.lua, by which a fence is known
--
-- Returns the command's answer; OK for a claim alone. A rejection changes nothing. It is an error
-- that begins with one of these:
--
--     ZF001 {"token":…,"highest_token":…}   stale
--     ZF002 {"token":…,"highest_token":…}   holder conflict
--     ZF003                                 malformed
--
-- If the command itself fails, for example with WRONGTYPE, the claim is made nevertheless.

local fence, value = KEYS[1], KEYS[2]
local token, holder, command = ARGV[1], ARGV[2], ARGV[3]

-- Lua's numbers are doubles. They hold tokens exactly, because tokens have at most 15 digits.
local well_formed = token and #token <= 15 and token:match('^[1-9]%d*$')
    and holder and #holder <= 128 and not holder:match('[^!-~]')
if not well_formed then
    return redis.error_reply('ZF003 the token or the holder is malformed')
end
local commands = { SET = true, HSET = true, DEL = true }
if value and not commands[command] or not value and command then
    return redis.error_reply('ZF003 a value is written by SET, HSET or DEL')
end
-- Lua could not pass on many more, and would say so only after the claim.
if #ARGV > 7003 then
    return redis.error_reply('ZF003 the command has more than 7000 arguments')
end
-- A fence under another name is known by a field of its own. Token and holder alone may be a value.
local mark = 'fenced.lua'
if command == 'HSET' then
    for field = 4, #ARGV, 2 do
        if ARGV[field] == mark then
            return redis.error_reply('ZF003 the field fenced.lua is a fence\'s')
        end
    end
end
local value_is_fence = value and (
    value == fence
    or value:match('^fenced:{.*}:fence$')
    or redis.call('TYPE', value).ok == 'hash' and redis.call('HEXISTS', value, mark) == 1)
if value_is_fence or command == 'DEL' and ARGV[4] then
    return redis.error_reply('ZF003 one value is written, and no fence')
end

local seen = redis.call('HMGET', fence, 'token', 'holder')
local highest_token, owner = seen[1], seen[2]
if highest_token then
    local rejection
    if tonumber(token) < tonumber(highest_token) then
        rejection = 'ZF001'
    elseif tonumber(token) == tonumber(highest_token) and holder ~= owner then
        rejection = 'ZF002'
    end
    if rejection then
        return redis.error_reply(
            rejection .. ' {"token":' .. token .. ',"highest_token":' .. highest_token .. '}')
    end
end

redis.call('HSET', fence, 'token', token, 'holder', holder, mark, 1)
redis.call('PERSIST', fence)
if value then
    return redis.call(command, value, unpack(ARGV, 4))
end
return redis.status_reply('OK')
