-- Take a dead process off the list of zombies, once nothing is left to do or to tell about it.
--
-- KEYS info     what is known about it
-- KEYS zombies  those that died without saying goodbye
-- ARGV process  its name
-- ARGV told     1 if somebody has seen it and wants it off the list: then it need not be forgotten first
--
-- Returns "dropped"; "unburied" if what it held is not given back yet; "kept" if it is still remembered

local died_at, given_back_at = unpack(redis.call("HMGET", info, "died_at", "given_back_at"))
if died_at and not given_back_at then
  return "unburied"
end
if died_at and told ~= "1" then
  return "kept"
end
redis.call("SREM", zombies, process)
return "dropped"
