-- Write down how far a task is, if the consumer still has it.
--
-- KEYS held      the tasks of this consumer
-- KEYS info      the task
-- ARGV id        the name of the task
-- ARGV number    the number it was handed out with
-- ARGV fraction  how much of it is done, from 0 to 1
-- ARGV note      what it is doing
--
-- Returns "lost" or "noted"

if redis.call("HGET", held, id) ~= number then
  return "lost"
end
-- The first write is one that a full server lets pass: a task must not fail because it tells how far it is.
redis.call("HDEL", info, "note")
redis.call("HSET", info, "progress", fraction, "note", note)
return "noted"
