-- Store the results of tasks that a consumer has done, if they are still its own.
--
-- KEYS held      the tasks of this consumer
-- KEYS running   who runs which task
-- KEYS consumers until when each consumer has its lease
-- ARGV consumer  who has done them
-- ARGV leaves    1: the consumer ends with its task
-- ARGV again     1: this may have happened already
-- ARGV finished  the channel on which finished tasks are named
-- ARGV info_of   what the key of a task begins with
-- ARGV result_of what the key of a result begins with
-- ARGV rates_of  what the key of a minute begins with
-- ROW ARGV id        the name of the task
-- ROW ARGV number    the number it was handed out with
-- ROW ARGV result    what it returned
-- ROW ARGV result_ms how long the result is kept; 0 if not at all
--
-- Returns for each row "done" or "lost"

local ids = {}
for i = 1, rows do
  ids[i] = row(i)
end
local numbers = redis.call("HMGET", held, unpack(ids))

local outcomes, done, ours, seen = {}, {}, {}, {}
for i = 1, rows do
  local id, number, result = row(i)
  if numbers[i] == number and not seen[id] then
    outcomes[i], seen[id] = "done", true
    done[#done + 1], ours[#ours + 1] = id, i
  elseif again == "1" and redis.call("GET", result_of .. id) == result then
    outcomes[i] = "done"
  else
    outcomes[i] = "lost"
  end
end
if #done == 0 then
  return outcomes
end

-- The first write frees memory, so that also a full server lets its tasks be worked down. Should one of the others
-- be denied, everything is as before.
redis.call("HDEL", held, unpack(done))
local function undo(refusal)
  for _, i in ipairs(ours) do
    local id, number = row(i)
    redis.call("HSET", held, id, number)
    redis.pcall("DEL", result_of .. id)
  end
  return refusal
end

local infos = {}
for at, i in ipairs(ours) do
  local id, _, result, result_ms = row(i)
  infos[at] = info_of .. id
  if result_ms ~= "0" then
    local stored = redis.pcall("SET", result_of .. id, result, "PX", result_ms)
    if stored.err then
      return undo(stored)
    end
  end
end
local removed = redis.pcall("DEL", unpack(infos))
if type(removed) == "table" then
  return undo(removed)
end

redis.call("HDEL", running, unpack(done))
if leaves == "1" then
  redis.call("ZREM", consumers, consumer)
end
local minute = rates_of .. math.floor(redis.call("TIME")[1] / 60)
if redis.pcall("HINCRBY", minute, "done", #done) == #done then
  redis.pcall("PEXPIRE", minute, 3660000)
end
redis.pcall("PUBLISH", finished, table.concat(done, " "))
return outcomes
