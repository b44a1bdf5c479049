-- Put the same content, sealed with another key, in the place of the old one. To whatever depends on the item nothing
-- has changed, and it lives no longer by it.
--
-- USES time        what time it is
-- USES announcing  tells what happened
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- KEYS item         the item
-- ARGV id           its id
-- ARGV was          the SHA-1 of the content that is to be replaced
-- ARGV content      what it is replaced with
--
-- Returns {"resealed"}, {"missing"}, or {"other"} if it has another content by now

local there = redis.call("HMGET", item, "content", "version", "type", "contextId")
if not there[1] then
  return {"missing"}
end
-- No two are sealed alike: whoever finds it so has done it, and not heard of it.
if there[1] == content then
  return {"resealed"}
end
if redis.sha1hex(there[1]) ~= was then
  return {"other"}
end

-- A new version, so that copies of the item are replaced. What others wrote, and nobody has looked at, has none yet.
local version = there[2] and whole(tonumber(there[2]) + 1)
if version then
  redis.call("HSET", item, "content", content, "version", version)
else
  redis.call("HSET", item, "content", content)
end
announce("updated", id, there[3], there[4], version, "resealed")
return {"resealed"}
