-- Remove waiting tasks of one priority, those that would be handed out next. Bounded: call it again until it finds none.
--
-- KEYS queue     ids of waiting tasks of this priority
-- KEYS running   who runs which task
-- KEYS counts    tasks handed out so far, and cancelled ones in the lists
-- ARGV priority  which priority
-- ARGV most      how many entries at once
-- ARGV kept_ms   how long it is remembered that they were cancelled
-- ARGV finished  the channel on which finished tasks are named
-- ARGV info_of   what the key of a task begins with
--
-- Returns {number of entries, number of tasks among them}

local ids = redis.call("LRANGE", queue, -most, -1)
if #ids == 0 then
  return {0, 0}
end

-- The first write is one that a full server lets pass, the last one takes the entries from their list.
redis.call("HDEL", counts, "")
local removed, cancelled = {}, 0
for _, id in ipairs(ids) do
  local known = redis.pcall("HMGET", info_of .. id, "at", "state")
  local is_ours, state = known[1], known[2]
  if is_ours and not state and redis.call("HEXISTS", running, id) == 0 then
    redis.call("HSET", info_of .. id, "state", "cancelled")
    redis.call("HDEL", info_of .. id, "payload", "failures", "crashes", "reason")
    redis.call("PEXPIRE", info_of .. id, kept_ms)
    removed[#removed + 1] = id
  elseif state == "cancelled" then
    redis.call("PEXPIRE", info_of .. id, kept_ms)
    cancelled = cancelled + 1
  elseif not is_ours then
    -- Somebody else's entry: what they wrote about it goes with it.
    redis.call("DEL", info_of .. id)
    removed[#removed + 1] = id
  end
end
redis.call("RPOP", queue, #ids)
if cancelled > 0 then
  redis.call("HINCRBY", counts, "cancelled:" .. priority, -cancelled)
end
if #removed > 0 then
  redis.pcall("PUBLISH", finished, table.concat(removed, " "))
end
return {#ids, #removed}
