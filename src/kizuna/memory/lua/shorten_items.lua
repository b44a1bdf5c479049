-- Let items of a low priority end sooner; none that ends sooner anyway lives longer by it.
--
-- USES time        what time it is
-- USES announcing  tells what happened
-- KEYS expiry       when items end; also says where to look on a cluster
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV priority     theirs; whoever has another one by now is let alone
-- ARGV left_ms      what is left of their lives
-- ROW ARGV id       an item
--
-- Returns for each row 1 if it was shortened, else 0

local sooner = now + left_ms

local function shorten(id)
  local key = item_of .. id
  local is = redis.pcall("HMGET", key, "expiresAt", "priority", "version", "type", "contextId")
  local expires = not is.err and tonumber(is[1])
  if not expires or expires <= sooner or is[2] ~= priority then
    return 0
  end
  -- First what needs no memory: a full server takes that, and then the rest.
  redis.call("PEXPIREAT", key, whole(sooner))
  redis.call("HSET", key, "expiresAt", whole(sooner))
  redis.call("ZADD", expiry, whole(sooner), id)
  announce("updated", id, is[4], is[5] or "global", is[3] or "1", "shortened")
  return 1
end

local shortened = {}
for i = 1, rows do
  shortened[i] = shorten(row(i))
end
return shortened
