-- Hand waiting tasks to a consumer, under its lease: high before normal before low, but what is kept for the
-- lower ones first.
--
-- KEYS high          ids of waiting tasks of high priority
-- KEYS normal        ids of waiting tasks of normal priority
-- KEYS low           ids of waiting tasks of low priority
-- KEYS delayed       tasks that wait for their time
-- KEYS consumers     until when each consumer has its lease
-- KEYS running       who runs which task
-- KEYS held          the tasks of this consumer
-- KEYS idle          consumers that wait for a task
-- KEYS paused        present while nothing is handed out
-- KEYS counts        tasks handed out so far, and cancelled ones in the lists
-- KEYS groups        the groups that have, or had, tasks
-- ARGV group         which group
-- ARGV consumer      who asks
-- ARGV lease_ms      how long its lease lasts from now on
-- ARGV most          how many tasks it wants at most
-- ARGV most_bytes    no further task once their payloads are this large
-- ARGV waits         1: it will wait if there is none, and wants to be woken
-- ARGV stays         1: it has a lease also without a task
-- ARGV normal_share  the part of all that is kept for normal ones
-- ARGV low_share     the part of all that is kept for low ones
-- ARGV result_ms     how long a cancelled one is remembered
-- ARGV info_of       what the key of a task begins with
--
-- Returns {word, ms until a delayed task is due or -1, a consumer whose lease has ended or "", number, tasks}. The word
-- is "tasks", "empty", "paused", or "again" if only entries without a task were found. The number is of this handing
-- out, and proves later on that a task is still in the same hands. A task is {id, payload, priority}, or, if it has any
-- of them, {id, payload, priority, failures, crashes, name, timeout_ms, result_ms}.

local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Two calls are never in the same microsecond, so this is a number that no other one has. Numbers that stand in every
-- task are text from here on: it would be made anew for each.
local number = string.format("%.0f", time[1] * 1000000 + time[2])
local at = string.format("%.0f", now)
local wanted = tonumber(most)

-- Look.

local is_paused = redis.call("EXISTS", paused) == 1
local first_due = redis.call("ZRANGE", delayed, 0, 0, "WITHSCORES")
local due_ms = first_due[2] and math.max(0, first_due[2] - now) or -1
local first_lapse = redis.call("ZRANGE", consumers, 0, 0, "WITHSCORES")
local lapsed = first_lapse[2] and tonumber(first_lapse[2]) <= now and first_lapse[1] ~= consumer and first_lapse[1] or ""
local handed = tonumber(redis.call("HGET", counts, "handed")) or 0

-- How many of each list. What is kept for the lower ones follows from how many were handed out before, so it is
-- exact also when they are asked for one by one.
local function shares()
  local high_there, normal_there, low_there = redis.call("LLEN", high), redis.call("LLEN", normal), redis.call("LLEN", low)
  local function kept(share)
    return math.floor((handed + wanted) * share) - math.floor(handed * share)
  end
  local low_kept = kept(tonumber(low_share))
  local normal_kept = math.max(0, kept(low_share + normal_share) - low_kept)
  local of_low = math.min(low_there, low_kept)
  local of_normal = math.min(normal_there, normal_kept)
  local of_high = math.min(high_there, wanted - of_low - of_normal)
  of_normal = math.min(normal_there, wanted - of_low - of_high)
  of_low = math.min(low_there, wanted - of_high - of_normal)
  return of_high, of_normal, of_low
end

-- The fields that somebody else wrote about a task, as one JSON object; nil if there are none.
local function fields_of(entry)
  local fields, flat = {}, redis.call("HGETALL", info_of .. entry)
  for i = 1, #flat, 2 do
    fields[flat[i]] = flat[i + 1]
  end
  return flat[1] and cjson.encode(fields)
end

-- Somebody else's entry, without our fields: its payload is where they put it, or the entry itself. Where that cannot
-- be the name of a task, or is the name of something else, the task gets a name of its own.
local function adopted(entry, info, priority)
  local payload
  if info.err then
    payload = redis.pcall("GET", info_of .. entry)
  else
    payload = info[2] or fields_of(entry)
  end
  local is_foreign = type(payload) == "table"
  local is_name = #entry <= 256 and entry:find("^[!-~]+$") and not entry:find("[%*%?%[%]{}:\\]")
  local id = entry
  if is_foreign or not is_name then
    id = redis.sha1hex(entry)
    if redis.call("EXISTS", info_of .. id) == 1 then
      return nil
    end
  end
  if is_foreign or not payload then
    payload = entry
  end
  local task = {id, payload, priority, false, false, info[5] or false, info[6] or false, info[7] or false}
  task.is_new, task.replaces = true, info.err and id == entry
  return task
end

local bytes, bytes_at_most, seen, cancelled = 0, tonumber(most_bytes), {}, {}

-- The tasks that are next in a list, and how many entries they were.
local function next_of(queue, priority, number)
  local found = {}
  if number == 0 then
    return found, 0
  end
  local entries = redis.call("LRANGE", queue, -number, -1)
  local runs = redis.call("HMGET", running, unpack(entries))
  for i = #entries, 1, -1 do
    if bytes >= bytes_at_most then
      return found, #entries - i
    end
    local id, task = entries[i], nil
    local info = redis.pcall(
      "HMGET", info_of .. id, "at", "payload", "failures", "crashes", "name", "timeout_ms", "result_ms", "state"
    )
    local is_ours, state = info[1], info[8]
    if is_ours and not state then
      -- A short answer is a cheap one, and most tasks have none of the others.
      if info[3] or info[4] or info[5] or info[6] or info[7] then
        task = {id, info[2] or "", priority, info[3], info[4], info[5], info[6], info[7]}
      else
        task = {id, info[2] or "", priority}
      end
    elseif not is_ours then
      task = adopted(id, info, priority)
    elseif state == "cancelled" then
      cancelled[#cancelled + 1] = {id, priority}
    end
    -- An entry that stands twice in the lists, or for a task that runs already, is not another task.
    if task and not seen[task[1]] and not runs[i] then
      seen[task[1]] = true
      bytes = bytes + #task[2]
      found[#found + 1] = task
    end
  end
  return found, #entries
end

local of_high, of_normal, of_low = 0, 0, 0
local tasks = {}
if not is_paused then
  of_high, of_normal, of_low = shares()
  -- The lower ones first: large payloads of the higher ones must not keep them from their share.
  local low_ones, normal_ones
  low_ones, of_low = next_of(low, "low", of_low)
  normal_ones, of_normal = next_of(normal, "normal", of_normal)
  tasks, of_high = next_of(high, "high", of_high)
  for _, task in ipairs(normal_ones) do
    tasks[#tasks + 1] = task
  end
  for _, task in ipairs(low_ones) do
    tasks[#tasks + 1] = task
  end
end

-- Write: first what could be refused, and last what takes the tasks from their lists. The very first frees memory, so
-- that also a full server lets its tasks be worked down.

redis.call("ZREM", idle, consumer)
if (#tasks > 0 or stays == "1") and redis.call("ZADD", consumers, now + lease_ms, consumer) == 1 then
  redis.call("SADD", groups, group)
end

if #tasks > 0 then
  local ids, holding, runners = {}, {}, {}
  for i, task in ipairs(tasks) do
    ids[i] = task[1]
    holding[2 * i - 1], holding[2 * i] = task[1], number
    runners[2 * i - 1], runners[2 * i] = task[1], consumer
  end
  redis.call("HSET", held, unpack(holding))
  local written = redis.pcall("HSET", running, unpack(runners))
  for _, task in ipairs(tasks) do
    if task.is_new and type(written) ~= "table" then
      local key = info_of .. task[1]
      if task.replaces then
        redis.call("DEL", key)
      end
      -- What somebody else calls its state would keep it from being handed out another time.
      redis.pcall("HDEL", key, "state")
      written = redis.pcall("HSET", key, "payload", task[2], "priority", task[3], "at", at, "group", group)
    end
  end
  if type(written) == "table" then
    redis.call("HDEL", held, unpack(ids))
    redis.pcall("HDEL", running, unpack(ids))
    return written
  end
  redis.call("HINCRBY", counts, "handed", #tasks)
end

for _, gone in ipairs(cancelled) do
  redis.call("PEXPIRE", info_of .. gone[1], result_ms)
  redis.call("HINCRBY", counts, "cancelled:" .. gone[2], -1)
end

if of_high > 0 then
  redis.call("RPOP", high, of_high)
end
if of_normal > 0 then
  redis.call("RPOP", normal, of_normal)
end
if of_low > 0 then
  redis.call("RPOP", low, of_low)
end

if #tasks > 0 then
  return {"tasks", due_ms, lapsed, number, tasks}
end
if of_high + of_normal + of_low > 0 then
  return {"again", due_ms, lapsed, number, tasks}
end
if waits == "1" then
  redis.call("ZADD", idle, now, consumer)
end
return {is_paused and "paused" or "empty", due_ms, lapsed, number, tasks}
