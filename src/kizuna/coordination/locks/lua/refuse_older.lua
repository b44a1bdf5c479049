-- Let a fencing number pass that is not lower than any that came before it, and remember it.
--
-- KEYS seen     highest number that came to the resource
-- ARGV number   the one that comes now
-- ARGV keep_ms  how long it is remembered after the last one that passed
--
-- Returns {"passed", number} or {"older", highest number so far}

local highest = tonumber(redis.call("GET", seen) or 0)
if tonumber(number) < highest then
  return {"older", highest}
end
redis.call("SET", seen, number, "PX", keep_ms)
return {"passed", tonumber(number)}
