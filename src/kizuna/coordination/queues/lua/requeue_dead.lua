-- Give tasks that were given up another chance, with fresh counts, at the end of their queues.
--
-- KEYS high      ids of waiting tasks of high priority
-- KEYS normal    ids of waiting tasks of normal priority
-- KEYS low       ids of waiting tasks of low priority
-- KEYS dead      tasks that were given up
-- KEYS idle      consumers that wait for a task
-- ARGV task      which one; empty: the oldest
-- ARGV most      how many of the oldest
-- ARGV info_of   what the key of a task begins with
-- ARGV wake_of   what the channel of a consumer begins with
--
-- Returns {number that left the dead letters, number that was requeued}: the info of one may have expired

local ids
if task == "" then
  ids = redis.call("ZRANGE", dead, 0, most - 1)
else
  ids = redis.call("ZSCORE", dead, task) and {task} or {}
end
local queues, requeued = {high = high, normal = normal, low = low}, 0
for _, id in ipairs(ids) do
  local info = info_of .. id
  local known = redis.call("HMGET", info, "state", "priority")
  if known[1] == "dead" then
    redis.call("HDEL", info, "state", "failures", "crashes", "reason")
    redis.call("PERSIST", info)
    redis.call("LPUSH", queues[known[2]] or normal, id)
    requeued = requeued + 1
  end
  redis.call("ZREM", dead, id)
end
if requeued > 0 then
  local woken = redis.pcall("ZPOPMIN", idle, requeued)
  for i = 1, #woken, 2 do
    redis.pcall("PUBLISH", wake_of .. woken[i], "look")
  end
end
return {#ids, requeued}
