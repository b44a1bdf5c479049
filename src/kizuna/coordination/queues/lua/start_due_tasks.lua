-- Put delayed tasks whose time has come into their queues.
--
-- KEYS high      ids of waiting tasks of high priority
-- KEYS normal    ids of waiting tasks of normal priority
-- KEYS low       ids of waiting tasks of low priority
-- KEYS delayed   tasks that wait for their time
-- KEYS idle      consumers that wait for a task
-- ARGV most      how many at once
-- ARGV info_of   what the key of a task begins with
-- ARGV wake_of   what the channel of a consumer begins with
--
-- Returns how many were due

local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call("ZRANGEBYSCORE", delayed, "-inf", now, "LIMIT", 0, most)
if #due == 0 then
  return 0
end

-- The first write is one that a full server lets pass: nothing of this is new.
redis.call("ZREM", idle, "")
local lists, queues = {high = {}, normal = {}, low = {}}, {high = high, normal = normal, low = low}
for _, id in ipairs(due) do
  -- One whose info somebody has deleted is adopted like any other entry without our fields.
  local info = redis.pcall("HMGET", info_of .. id, "state", "priority")
  local ids = lists[info[2] or "normal"] or lists.normal
  ids[#ids + 1] = id
  if info[1] == "delayed" then
    redis.call("HDEL", info_of .. id, "state")
  end
end
for priority, ids in pairs(lists) do
  if #ids > 0 then
    redis.call("LPUSH", queues[priority], unpack(ids))
  end
end
redis.call("ZREM", delayed, unpack(due))

local woken = redis.pcall("ZPOPMIN", idle, #due)
for i = 1, #woken, 2 do
  redis.pcall("PUBLISH", wake_of .. woken[i], "look")
end
return #due
