-- Take members out of an index in which they do not belong.
--
-- USES time       what time it is
-- USES belonging  whether a member belongs in an index
-- KEYS index      the index
-- ARGV root       what all keys begin with
-- ARGV of         what its members are: item or context
-- ARGV field      by what the index is: type, contextId, priority, dependsOn, generation; empty: all are in it
-- ARGV name       whose index it is
-- ARGV grace_ms   how long what has ended may wait for whoever clears up after it
-- ARGV kind       the type of the index
-- ROW ARGV id     a member
--
-- Returns for each row 1 if it was taken out, else 0

local REMOVE = {set = "SREM", zset = "ZREM", hash = "HDEL"}

local dropped = {}
for i = 1, rows do
  local id = row(i)
  dropped[i] = stray(id) and redis.call(REMOVE[kind], index, id) or 0
end
return dropped
