-- Forget tasks that were given up.
--
-- KEYS dead      tasks that were given up
-- ARGV task      which one; empty: the oldest
-- ARGV most      how many of the oldest
-- ARGV info_of   what the key of a task begins with
--
-- Returns how many there were

local ids
if task == "" then
  ids = redis.call("ZRANGE", dead, 0, most - 1)
else
  ids = redis.call("ZSCORE", dead, task) and {task} or {}
end
for _, id in ipairs(ids) do
  local info = info_of .. id
  if redis.call("HGET", info, "state") == "dead" then
    redis.call("UNLINK", info)
  end
  redis.call("ZREM", dead, id)
end
return #ids
