-- Cancel a task, unless it has ended. In a queue it is only marked, and skipped when its turn comes.
--
-- KEYS info      the task
-- KEYS result    what it returned
-- KEYS running   who runs which task
-- KEYS consumers until when each consumer has its lease
-- KEYS delayed   tasks that wait for their time
-- KEYS counts    tasks handed out so far, and cancelled ones in the lists
-- ARGV group     which group
-- ARGV id        the name of the task
-- ARGV result_ms how long it is remembered that it was cancelled
-- ARGV held_of   what the key of a consumer's tasks begins with
-- ARGV finished  the channel on which finished tasks are named
-- ARGV wake_of   what the channel of a consumer begins with
--
-- Returns the state that it had: "waiting", "delayed" or "running", and it is cancelled now; or "cancelled", "dead",
-- "done" or "unknown", and nothing has changed

local known = redis.call("HMGET", info, "at", "state", "priority", "group")
local at, priority = known[1], known[3] or "normal"
if not at or (known[4] or "default") ~= group then
  return redis.call("EXISTS", result) == 1 and "done" or "unknown"
end
local consumer = redis.call("HGET", running, id)
local state = known[2] or (consumer and "running") or "waiting"
if state == "cancelled" or state == "dead" then
  return state
end

-- First what takes it away from others; that also frees memory, so that it works on a full server.
redis.call("ZREM", delayed, id)
if state == "running" then
  redis.call("HDEL", held_of .. consumer, id)
  redis.call("HDEL", running, id)
  -- One that stays takes its lease anew with its next task.
  if redis.call("EXISTS", held_of .. consumer) == 0 then
    redis.call("ZREM", consumers, consumer)
  end
elseif state == "waiting" then
  redis.call("HINCRBY", counts, "cancelled:" .. priority, 1)
end
redis.call("HSET", info, "state", "cancelled")
redis.call("HDEL", info, "payload", "progress", "note", "failures", "crashes", "reason")
if state ~= "waiting" then
  redis.call("PEXPIRE", info, result_ms)
end
redis.pcall("PUBLISH", finished, id)
if state == "running" then
  redis.pcall("PUBLISH", wake_of .. consumer, "gone")
end
return state
