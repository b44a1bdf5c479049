-- Put the tasks of a consumer that is gone back to the front of their queues, or give up those that have taken down
-- too many consumers. Bounded: call it again for "more".
--
-- KEYS high      ids of waiting tasks of high priority
-- KEYS normal    ids of waiting tasks of normal priority
-- KEYS low       ids of waiting tasks of low priority
-- KEYS dead      tasks that were given up
-- KEYS running   who runs which task
-- KEYS consumers until when each consumer has its lease
-- KEYS held      the tasks of that consumer
-- KEYS idle      consumers that wait for a task
-- ARGV consumer  who is gone
-- ARGV why       lapsed: only if its lease has ended; died: in any case; left: without blame for its tasks
-- ARGV most      how many tasks at once
-- ARGV crashes   how many consumers a task may take down
-- ARGV dead_ms   how long a task that was given up is kept
-- ARGV finished  the channel on which finished tasks are named
-- ARGV info_of   what the key of a task begins with
-- ARGV rates_of  what the key of a minute begins with
-- ARGV wake_of   what the channel of a consumer begins with
--
-- Returns {"done" or "more" or "alive", returned, given up}

local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if why == "lapsed" then
  local ends = redis.call("ZSCORE", consumers, consumer)
  if not ends or tonumber(ends) > now then
    return {"alive", 0, 0}
  end
end
local ids = redis.call("HRANDFIELD", held, most)

-- The first write frees memory, so that it works also on a full server.
redis.call("ZREM", idle, consumer)
local queues, returned, given_up = {high = high, normal = normal, low = low}, 0, 0
for _, id in ipairs(ids) do
  local info = info_of .. id
  local known = redis.pcall("HMGET", info, "at", "priority", "crashes")
  if known[1] then
    local count = (tonumber(known[3]) or 0) + (why == "left" and 0 or 1)
    if why ~= "left" and count >= tonumber(crashes) then
      redis.call("HSET", info, "state", "dead", "crashes", count, "reason", "took down " .. count .. " consumers")
      redis.call("PEXPIRE", info, dead_ms)
      redis.call("ZADD", dead, now, id)
      redis.pcall("PUBLISH", finished, id)
      given_up = given_up + 1
    else
      if count > 0 then
        redis.call("HSET", info, "crashes", count)
      end
      redis.call("RPUSH", queues[known[2]] or normal, id)
      returned = returned + 1
    end
    redis.call("HDEL", info, "progress", "note")
  end
  redis.call("HDEL", running, id)
  redis.call("HDEL", held, id)
end

local is_done = redis.call("EXISTS", held) == 0
if is_done then
  redis.call("ZREM", consumers, consumer)
end
if why ~= "left" and returned + given_up > 0 then
  local minute = rates_of .. math.floor(now / 60000)
  redis.pcall("HINCRBY", minute, "crashed", returned + given_up)
  redis.pcall("HINCRBY", minute, "dead", given_up)
  redis.pcall("PEXPIRE", minute, 3660000)
end
if returned > 0 then
  local woken = redis.pcall("ZPOPMIN", idle, returned)
  for i = 1, #woken, 2 do
    redis.pcall("PUBLISH", wake_of .. woken[i], "look")
  end
end
-- It may be alive after all, and should know.
redis.pcall("PUBLISH", wake_of .. consumer, "gone")
return {is_done and "done" or "more", returned, given_up}
