-- The assignment that a ticket has, and how it gets one: on another server, by way of the outbox.
local function given(id)
  if elsewhere == "1" then
    return redis.call("HGET", outbox, id)
  end
  return redis.call("GET", assignment_of .. id)
end

local function give(id, assignment)
  if elsewhere == "1" then
    redis.call("HSET", outbox, id, assignment)
  else
    redis.call("SET", assignment_of .. id, assignment, "EX", assigned_s)
  end
  redis.call("EXPIRE", body_of .. id, assigned_s)
end
