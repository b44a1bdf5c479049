-- Be the one who makes room, go on being it, or let another one be it.
--
-- KEYS relief   who is it now
-- ARGV token    who asks
-- ARGV hold_ms  for how long; 0: no longer
--
-- Returns 1 if it is who asks, else 0

local holder = redis.call("GET", relief)
if holder and holder ~= token then
  return 0
end
-- A full server takes no SET, unless something was removed before it.
redis.call("DEL", relief)
if hold_ms ~= "0" then
  redis.call("SET", relief, token, "PX", hold_ms)
end
return 1
