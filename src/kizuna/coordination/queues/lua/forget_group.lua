-- Remove what is left of a group that has no tasks.
--
-- KEYS high      ids of waiting tasks of high priority
-- KEYS normal    ids of waiting tasks of normal priority
-- KEYS low       ids of waiting tasks of low priority
-- KEYS delayed   tasks that wait for their time
-- KEYS dead      tasks that were given up
-- KEYS consumers until when each consumer has its lease
-- KEYS idle      consumers that wait for a task
-- KEYS paused    present while nothing is handed out
-- KEYS counts    tasks handed out so far, and cancelled ones in the lists
-- KEYS groups    the groups that have, or had, tasks
-- ARGV group     which group
-- ARGV rates_of  what the key of a minute begins with
--
-- Returns "forgotten", or "used" if there are tasks or consumers

if redis.call("EXISTS", high, normal, low, delayed, dead, consumers) > 0 then
  return "used"
end
local minute = math.floor(redis.call("TIME")[1] / 60)
local rates = {}
for age = 0, 61 do
  rates[age + 1] = rates_of .. (minute - age)
end
redis.call("DEL", idle, paused, counts, unpack(rates))
redis.call("SREM", groups, group)
return "forgotten"
