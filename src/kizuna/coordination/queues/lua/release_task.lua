-- Take a task from a consumer that did not run it, and put it back where it came from.
--
-- KEYS held      the tasks of this consumer
-- KEYS running   who runs which task
-- KEYS consumers until when each consumer has its lease
-- KEYS info      the task
-- KEYS high      ids of waiting tasks of high priority
-- KEYS normal    ids of waiting tasks of normal priority
-- KEYS low       ids of waiting tasks of low priority
-- KEYS idle      consumers that wait for a task
-- ARGV consumer  who has it
-- ARGV leaves    1: the consumer ends with its task
-- ARGV id        the name of the task
-- ARGV number    the number it was handed out with
-- ARGV wake_of   what the channel of a consumer begins with
--
-- Returns "lost" or "released"

if redis.call("HGET", held, id) ~= number then
  return "lost"
end
local queue = ({high = high, low = low})[redis.call("HGET", info, "priority")] or normal

-- The first write frees memory, so that it works also on a full server.
redis.call("HDEL", held, id)
local written = redis.pcall("RPUSH", queue, id)
if type(written) == "table" then
  redis.call("HSET", held, id, number)
  return written
end
redis.call("HDEL", running, id)
redis.call("HDEL", info, "progress", "note")
if leaves == "1" then
  redis.call("ZREM", consumers, consumer)
end
local woken = redis.pcall("ZPOPMIN", idle, 1)
if woken[1] then
  redis.pcall("PUBLISH", wake_of .. woken[1], "look")
end
return "released"
