-- Tell what is known about processes, each at one moment.
--
-- KEYS active           all processes that are at work
-- KEYS zombies          those that died without saying goodbye
-- KEYS deadlines        until when each has to be heard of again
-- ROW KEYS info         what the process says about itself
-- ROW KEYS heartbeat    present while the process is heard of
-- ROW ARGV process      its name
--
-- Returns for each {state, ms since it was heard of or -1, fields and values}, state being "alive", "silent", "zombie",
-- "dead" (no longer among the zombies) or "unknown"

local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function state_of(info, heartbeat, process)
  local due = redis.call("ZSCORE", deadlines, process)
  if due then
    return now <= tonumber(due) and "alive" or "silent"
  end
  if redis.call("SISMEMBER", active, process) == 1 then
    return redis.call("EXISTS", heartbeat) == 1 and "alive" or "silent"
  end
  if redis.call("SISMEMBER", zombies, process) == 1 then
    return "zombie"
  end
  return redis.call("EXISTS", info) == 1 and "dead" or "unknown"
end

local described = {}
for i = 1, rows do
  local info, heartbeat, process = row(i)
  local heard_at = tonumber(redis.call("HGET", info, "heard_at") or false)
  local silent_ms = heard_at and now - heard_at or -1
  described[i] = {state_of(info, heartbeat, process), silent_ms, redis.call("HGETALL", info)}
end
return described
