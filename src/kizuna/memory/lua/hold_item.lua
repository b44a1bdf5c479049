-- Keep others from changing an item while it is taken to another shard; for so long, should whoever takes it die.
--
-- USES time   what time it is
-- KEYS item     the item
-- ARGV expected the version that it has to have
-- ARGV hold_ms  for how long; 0: no longer
--
-- Returns "held", "let go", "missing", "other" if it has another version, or "busy" if somebody else holds it

local is = redis.call("HMGET", item, "version", "heldUntil")
if not is[1] then
  return "missing"
end
if hold_ms == "0" then
  redis.call("HDEL", item, "heldUntil")
  return "let go"
end
if is[1] ~= expected then
  return "other"
end
if (tonumber(is[2]) or 0) > now then
  return "busy"
end
redis.call("HSET", item, "heldUntil", whole(now + hold_ms))
return "held"
