-- Add tasks to a queue, or to those that wait for their time. One whose id is known is left as it is.
--
-- KEYS queue     ids of waiting tasks of this priority
-- KEYS delayed   tasks that wait for their time
-- KEYS idle      consumers that wait for a task
-- KEYS groups    the groups that have, or had, tasks
-- ARGV group     which group
-- ARGV priority  which priority
-- ARGV delay_ms  how long they have to wait; 0 if not at all
-- ARGV fresh     1: nobody can have used these ids before
-- ARGV info_of   what the key of a task begins with
-- ARGV result_of what the key of a result begins with
-- ARGV rates_of  what the key of a minute begins with
-- ARGV wake_of   what the channel of a consumer begins with
-- ROW ARGV id       the name of the task
-- ROW ARGV payload  what it is about
-- ROW ARGV more     further fields, as a JSON list; empty if there are none
--
-- Returns for each row "pushed" or "known"

local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local delay = tonumber(delay_ms)
-- As text once, and not as a number for each task.
local at = string.format("%.0f", now)

local outcomes, ids, places = {}, {}, {}
if fresh == "1" then
  for i = 1, rows do
    ids[i], places[i], outcomes[i] = row(i), i, "pushed"
  end
else
  local seen = {}
  for i = 1, rows do
    local id = row(i)
    if seen[id] or redis.call("EXISTS", info_of .. id, result_of .. id) > 0 then
      outcomes[i] = "known"
    else
      seen[id], outcomes[i] = true, "pushed"
      ids[#ids + 1], places[#places + 1] = id, i
    end
  end
end
if #ids == 0 then
  return outcomes
end

-- The first of these is refused, or none: a server that is full, or keeps us from these keys, says so here.
-- Only what is not as usual is written down: most tasks wait, and have normal priority.
local usual = priority == "normal" and {} or {"priority", priority}
if delay > 0 then
  usual[#usual + 1], usual[#usual + 2] = "state", "delayed"
end
local decoded = {[""] = usual}
for _, place in ipairs(places) do
  local id, payload, more = row(place)
  local fields = decoded[more]
  if not fields then
    fields = cjson.decode(more)
    for _, text in ipairs(usual) do
      fields[#fields + 1] = text
    end
    decoded[more] = fields
  end
  redis.call("HSET", info_of .. id, "payload", payload, "at", at, unpack(fields))
end

local added
if delay > 0 then
  local scored = {}
  for i, id in ipairs(ids) do
    scored[2 * i - 1], scored[2 * i] = now + delay, id
  end
  added = redis.pcall("ZADD", delayed, unpack(scored))
else
  added = redis.pcall("LPUSH", queue, unpack(ids))
end
if type(added) == "table" and added.err then
  for _, id in ipairs(ids) do
    redis.pcall("DEL", info_of .. id)
  end
  return added
end

-- From here on it has happened: nothing that only counts or wakes may turn it into an error.
local minute = rates_of .. math.floor(now / 60000)
if redis.pcall("HINCRBY", minute, "pushed", #ids) == #ids then
  redis.pcall("PEXPIRE", minute, 3660000)
  redis.pcall("SADD", groups, group)
end
-- A delayed task is nobody's business yet, but who waits has to know when it will be: one of them looks.
local woken = redis.pcall("ZPOPMIN", idle, delay > 0 and 1 or #ids)
for i = 1, #woken, 2 do
  redis.pcall("PUBLISH", wake_of .. woken[i], "look")
end
return outcomes
