-- Let go of a lock, be it that we hold it, wait for it, or do not know; and tell who is next.
--
-- Nothing that another one holds is deleted. Harmless when repeated.
--
-- KEYS lock   fencing number and token of the holder
-- KEYS line   those who wait, by when they came
-- KEYS turn   the one who may take the lock that was just released
-- KEYS held   the locks that the process of the token holds
-- ARGV token  who lets go; or the whole value of the lock, as an outsider may have written it
-- ARGV freed  beginning of the channels' names, to which that of a process is added
-- ARGV deaf   "skip" those that nobody hears for: they are gone; "trust" where they may be heard at another node
--
-- Returns "released", or "absent" if the token did not hold the lock

-- How long the next one has to come for it, before others may.
local GRACE_MS = 250

local value = redis.call("GET", lock)
local ours = value and (value == token or string.match(value, "^%d+:(.+)$") == token)
if value and not ours then
  redis.call("ZREM", line, token)
  return "absent"
end

-- The lock is free when we are done. Looked at in bounded pieces: a longer line is a later one's to tidy up.
local waiting = redis.call("ZRANGE", line, 0, 99)
local whose = not ours and redis.call("GET", turn)
local leaving, next_one = {token}, nil
if not whose or whose == token then
  for _, one in ipairs(waiting) do
    if one ~= token then
      local word = next_one and "soon:" or "turn:"
      local heard = redis.call("PUBLISH", freed .. string.match(one, "^(.*)/"), word .. one) > 0 or deaf == "trust"
      if next_one and heard then
        break
      elseif not next_one then
        leaving[#leaving + 1] = one
        next_one = heard and one
      end
    end
  end
end

if ours then
  redis.call("DEL", lock)
  redis.call("ZREM", held, lock)
end
if waiting[1] then
  redis.call("ZREM", line, unpack(leaving))
end
if next_one then
  redis.call("SET", turn, next_one, "PX", GRACE_MS)
elseif whose == token then
  redis.call("DEL", turn)
end
return ours and "released" or "absent"
