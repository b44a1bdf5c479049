-- End all items of older generations at once: nobody is shown them from now on. The sweeper puts them away.
--
-- KEYS numbers     how often each generation was raised
-- KEYS raised      raised generations, while older items are still being ended
-- ARGV generation  its name
-- ARGV token       by this the raise is known when it is repeated
--
-- Returns its number now

-- The token is kept beside the number, which others read: in a field that cannot be the name of a generation.
local mark = " " .. generation
if redis.call("HGET", numbers, mark) == token then
  return tonumber(redis.call("HGET", numbers, generation))
end
local number = redis.call("HINCRBY", numbers, generation, 1)
redis.call("HSET", numbers, mark, token)
redis.call("SADD", raised, generation)
return number
