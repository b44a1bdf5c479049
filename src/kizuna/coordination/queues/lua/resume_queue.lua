-- Hand tasks out again, and wake those who wait for them.
--
-- KEYS paused    present while nothing is handed out
-- KEYS high      ids of waiting tasks of high priority
-- KEYS normal    ids of waiting tasks of normal priority
-- KEYS low       ids of waiting tasks of low priority
-- KEYS idle      consumers that wait for a task
-- ARGV most      how many are woken at once
-- ARGV wake_of   what the channel of a consumer begins with
--
-- Returns 1 if it was paused, else 0

local was_paused = redis.call("DEL", paused)
local waiting = redis.call("LLEN", high) + redis.call("LLEN", normal) + redis.call("LLEN", low)
if waiting > 0 then
  local woken = redis.pcall("ZPOPMIN", idle, math.min(waiting, tonumber(most)))
  for i = 1, #woken, 2 do
    redis.pcall("PUBLISH", wake_of .. woken[i], "look")
  end
end
return was_paused
