-- Go through a part of one sorted set of items, and say of those that are in another one as well what they have there.
--
-- KEYS walked  the one that is gone through, from the lowest score on
-- KEYS also    the other one
-- ARGV start   how many of its members were passed already
-- ARGV most    how many are passed now
--
-- Returns {how many were passed, id, score in the first, score in the other, next id, …}

local members = redis.call("ZRANGE", walked, start, start + most - 1, "WITHSCORES")
local passed, ids = #members / 2, {}
if passed == 0 then
  return {0}
end
for at = 1, passed do
  ids[at] = members[at * 2 - 1]
end
local found = {passed}
for at, score in ipairs(redis.call("ZMSCORE", also, unpack(ids))) do
  if score then
    found[#found + 1], found[#found + 2], found[#found + 3] = ids[at], members[at * 2], score
  end
end
return found
