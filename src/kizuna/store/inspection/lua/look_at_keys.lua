-- Say what keys are: their types, when they end, and how much memory they take.
--
-- ARGV measure   1 to ask for the memory, 0 to leave it out
-- ROW KEYS key   the key to look at
--
-- Returns for each {type, ms until it ends or -1, bytes or -1}; {"none", -2, -1} of a key that is gone

local found = {}
for i = 1, rows do
  local key = row(i)
  local kind = redis.call("TYPE", key).ok
  local bytes = -1
  if measure == "1" then
    bytes = redis.call("MEMORY", "USAGE", key) or -1
  end
  found[i] = {kind, redis.call("PTTL", key), bytes}
end
return found
