-- Note that all the dead process held was given back, and let go of the claim.
--
-- KEYS info     what is known about the dead process
-- KEYS burial   who gives back what it held
-- ARGV claim    who we are
-- ARGV success  1 if everything was given back, else 0: the next one who looks tries again
--
-- Returns "noted", or "let go"

if redis.call("GET", burial) == claim then
  redis.call("DEL", burial)
end
if success ~= "1" or not redis.call("HGET", info, "died_at") then
  return "let go"
end
local time = redis.call("TIME")
redis.call("HSET", info, "given_back_at", time[1] * 1000 + math.floor(time[2] / 1000))
return "noted"
