-- What is wrong with members of one index.
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
-- Returns for each row "" if it belongs there, or is no longer there; else {"no item", "no context" or "foreign", what
-- it has instead}

local IS_IN = {set = "SISMEMBER", zset = "ZSCORE", hash = "HEXISTS"}

local function is_there(id)
  local reply = redis.pcall(IS_IN[kind], index, id)
  return reply == 1 or type(reply) == "string"
end

local found = {}
for i = 1, rows do
  local id = row(i)
  local wrong = stray(id)
  found[i] = wrong and is_there(id) and wrong or ""
end
return found
