-- The lock on this node if a holder has it under a grant, else an answer for the client.
--
-- returns the token, the grant, and the floor; or nil and the answer:
--         {0, grant, floor} if the holder has it under another grant, {0} if it has not.
local function owned(lock, holder, grant, other_grant)
    local token, own_grant, owner, floor = parts(lock)
    if owner ~= holder then
        return nil, {0}
    end
    if own_grant ~= grant and own_grant ~= other_grant then
        return nil, {0, tonumber(own_grant), tonumber(floor)}
    end
    return token, own_grant, floor
end
